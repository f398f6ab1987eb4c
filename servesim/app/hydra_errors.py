"""Hydra's and OmegaConf's many-line errors as one line with the nearest valid choice."""

import re
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from servesim.app.compose import composed
from servesim.app.files import unwritable
from servesim.app.paths import groups
from servesim.app.setup import not_chosen
from servesim.errors import ServesimError, UnknownChoiceError

_TOP_LEVEL = "servesim"
_ROOT = "config"  # of a simulation
# what composing may raise; Hydra refuses `group=null` with a bare ValueError
_REFUSALS = (HydraException, OmegaConfBaseException, ValueError)
# what `reworded` may have a line for
USER_ERRORS = (ServesimError, *_REFUSALS, OSError)


def reworded(error: Exception, overrides: Sequence[str], root: str = _ROOT) -> ServesimError | None:
    """One line for an error of the configuration, or None where it is none.

    Args:
        error: what was raised.
        overrides: settings as on the command line.
        root: the root's file in conf/.
    """
    if isinstance(error, ServesimError):
        return error
    if isinstance(error, MissingConfigException):
        return _unknown_option(error)
    if isinstance(error, OverrideParseException):
        return ServesimError(f"cannot read '{error.override}': expected setting=value")
    if isinstance(error, HydraException) and "Ambiguous value" in str(error):
        return _sweep_values(error, overrides, root)
    if isinstance(error, ConfigCompositionException):
        return _bad_override(error, overrides, root)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return ServesimError(_one_line(str(error)))
    if isinstance(error, ValueError) and "Config group override must be" in str(error):
        return _no_option(overrides)
    if isinstance(error, OSError) and error.filename is not None:
        return unwritable(str(error.filename), error)
    return None


def _no_option(overrides: Sequence[str]) -> ServesimError:
    """`group=null` or `group=5`, which Hydra refuses without naming the group."""
    known = groups()
    parents = {group.partition("/")[0] for group in known}
    for override in OverridesParser.create().parse_overrides([*filter(_is_override, overrides)]):
        swept = override.is_sweep_override()
        values = override.sweep_iterator() if swept else [override.value()]
        group = override.key_or_group
        for value in values if group in {*known, *parents} else ():
            if value is None:
                return not_chosen(group)
            if not isinstance(value, str | list):
                return UnknownChoiceError(group, value, known.get(group, []))
    return ServesimError("a config group needs the name of an option")


def _is_override(argument: str) -> bool:
    return not argument.startswith("-")


def _sweep_values(error: HydraException, overrides: Sequence[str], root: str) -> ServesimError:
    """A list of values outside a sweep, or a mistake because of which it is not seen as one."""
    single = [re.sub(r"=([^,()\[\]{}'\"]*),.*", r"=\1", o) for o in overrides]
    try:
        composed([*filter(_is_override, single)], root=root)
    except _REFUSALS as hidden:
        return reworded(hidden, single, root) or ServesimError(_one_line(str(hidden)))
    found = re.search(r"argument '([^']+)'", str(error))
    setting = found.group(1) if found else "a setting"
    remedy = "several values make a sweep; add -m" if root == _ROOT else "give one value"
    return ServesimError(f"{setting}: {remedy}")


def _unknown_option(error: MissingConfigException) -> ServesimError:
    found = re.search(r"Could not (?:load|find) '([^']+)'", str(error))
    name = error.missing_cfg_file or (found.group(1) if found else "")
    group, _, option = name.rpartition("/")
    if not group:
        return ServesimError(_one_line(str(error)))
    options = error.options or groups().get(group, [])
    return UnknownChoiceError(group, option.removesuffix(".yaml"), options)


def _bad_override(
    error: ConfigCompositionException, overrides: Sequence[str], root: str
) -> ServesimError:
    text = str(error)
    found = re.search(r"Could not override '([^']+)'", text)
    if not found:
        cause = error.__cause__
        return ServesimError(_one_line(f"{text} {cause}" if cause else text))
    key = found.group(1).split("@")[0]
    if "/" in key or "No match in the defaults list" in text:
        return UnknownChoiceError("config group", key, _groups_of(root))
    return _unknown_setting(key, overrides, root)


def _groups_of(root: str) -> list[str]:
    """Config groups that a root chooses from."""
    if root == _ROOT:
        return list(groups())
    chosen = composed([], with_hydra=True, root=root).hydra.runtime.choices
    return [str(group) for group in chosen if not str(group).startswith("hydra/")]


def _unknown_setting(key: str, overrides: Sequence[str], root: str) -> ServesimError:
    """Name the deepest part that exists and the settings that it has."""
    config = _config_without(key, overrides, root)
    path = key.split(".")
    entries = OmegaConf.select(config, key)
    if isinstance(entries, DictConfig):  # the setting is there: what it is set to is not
        names = ", ".join(str(entry) for entry in entries)
        return ServesimError(
            f"{key} has the entries {names}: change one with {key}.NAME=VALUE, "
            f"add one with +{key}.NAME=VALUE"
        )
    for depth in range(len(path) - 1, -1, -1):
        parent = ".".join(path[:depth])
        node = OmegaConf.select(config, parent) if parent else config
        if isinstance(node, DictConfig):
            known = [str(k) for k in node if k not in ("_target_", "hydra")]
            top = _TOP_LEVEL if root == _ROOT else f"{_TOP_LEVEL} {root}"
            return UnknownChoiceError(f"setting of {parent or top}", path[depth], known)
    return ServesimError(f"'{key}' cannot be set: '{path[0]}' has no settings of its own")


def _config_without(key: str, overrides: Sequence[str], root: str) -> DictConfig:
    """The configuration that only the chosen groups make, to see which settings they have."""
    chosen = [o for o in overrides if "=" in o and "." not in o.split("=", 1)[0] and "," not in o]
    for choices in (chosen, []):
        try:
            return composed([o for o in choices if not o.startswith(key)], root=root)
        except _REFUSALS:  # a group of the user's own, or a second mistake
            continue
    return OmegaConf.create()


def _one_line(text: str) -> str:
    return " ".join(text.split())
