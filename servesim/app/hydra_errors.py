"""Hydra's and OmegaConf's many-line errors as one line with the nearest valid choice."""

import re
from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from servesim.app.files import unwritable
from servesim.app.paths import conf_dir
from servesim.errors import ServesimError, UnknownChoiceError

_TOP_LEVEL = "servesim"


def reworded(error: Exception, overrides: Sequence[str]) -> ServesimError | None:
    """One line for an error of the configuration, or None where it is none."""
    if isinstance(error, ServesimError):
        return error
    if isinstance(error, MissingConfigException):
        return _unknown_option(error)
    if isinstance(error, OverrideParseException):
        return ServesimError(f"cannot read '{error.override}': expected setting=value")
    if isinstance(error, ConfigCompositionException):
        return _bad_override(error, overrides)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return ServesimError(_one_line(str(error)))
    if isinstance(error, OSError) and error.filename is not None:
        return unwritable(str(error.filename), error)
    return None


def _unknown_option(error: MissingConfigException) -> ServesimError:
    name = error.missing_cfg_file or ""
    group, _, option = name.rpartition("/")
    if not group or error.options is None:
        return ServesimError(_one_line(str(error)))
    return UnknownChoiceError(group, option.removesuffix(".yaml"), error.options)


def _bad_override(error: ConfigCompositionException, overrides: Sequence[str]) -> ServesimError:
    text = str(error)
    found = re.search(r"Could not override '([^']+)'", text)
    if not found:
        cause = error.__cause__
        return ServesimError(_one_line(f"{text} {cause}" if cause else text))
    key = found.group(1).split("@")[0]
    if "/" in key or "No match in the defaults list" in text:
        return UnknownChoiceError("config group", key, _groups())
    return _unknown_setting(key, overrides)


def _unknown_setting(key: str, overrides: Sequence[str]) -> ServesimError:
    """Name the deepest part that exists and the settings that it has."""
    config = _default_config([o for o in overrides if not o.lstrip("+~").startswith(key)])
    path = key.split(".")
    for depth in range(len(path) - 1, -1, -1):
        parent = ".".join(path[:depth])
        node = OmegaConf.select(config, parent) if parent else config
        if isinstance(node, DictConfig):
            known = [str(k) for k in node if k not in ("_target_", "hydra")]
            return UnknownChoiceError(f"setting of {parent or _TOP_LEVEL}", path[depth], known)
    return ServesimError(f"'{key}' cannot be set: '{path[0]}' has no settings of its own")


def _default_config(overrides: Sequence[str]) -> DictConfig:
    """The configuration without the bad override, or the default one where others are bad too."""
    choices = [o for o in overrides if "," not in o and not o.startswith("hydra")]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            return compose("config", overrides=choices)
        except HydraException:
            return compose("config")


def _groups() -> list[str]:
    root = conf_dir()
    return sorted({str(p.parent.relative_to(root)) for p in root.rglob("*/*.yaml")})


def _one_line(text: str) -> str:
    return " ".join(text.split())
