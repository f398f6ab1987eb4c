"""What a measured cost says of itself: for which deployment it holds, where it is from, its error.

Shared by the costs that hold for one deployment: they refuse any other one in the same words.
"""

from collections.abc import Mapping
from typing import Any

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError, nearest

FITTED_ON = ("model", "gpu", "tp", "dtype", "kv_dtype", "engine")
SOURCE = ("repository", "commit", "licence", "files", "engine_version", "fitted_at")
MEASURES = ("median", "p90", "worst")  # of |error| on held-out points, as shares


def check(
    fitted_on: Mapping[str, Any], source: Mapping[str, Any], held_out_error: Mapping[str, Any]
) -> None:
    """Refuse what lacks an entry or has one of the wrong kind; further entries are for people.

    Raises:
        SettingError: names the entry by its path.
    """
    require("fitted_on", fitted_on, FITTED_ON)
    require("source", source, SOURCE)
    require("held_out_error", held_out_error, ("step",))
    require("held_out_error.step", held_out_error["step"], MEASURES)
    for measure in MEASURES:
        checks.not_negative(f"held_out_error.step.{measure}", held_out_error["step"][measure])
    for item in FITTED_ON:
        if item == "tp":
            checks.whole("fitted_on.tp", fitted_on["tp"], at_least=1)
        else:
            _text(f"fitted_on.{item}", fitted_on[item])
    for item in SOURCE:
        _text(f"source.{item}", source[item])


def mismatch(fitted_on: Mapping[str, Any], deployment: Deployment) -> str:
    """What of `deployment` differs from what was measured, in words, or ""."""
    asked = {
        "model": deployment.model.name,
        "gpu": deployment.gpu.name,
        "tp": deployment.tp,
        "dtype": deployment.dtype,
        "kv_dtype": deployment.kv_dtype,
        "engine": deployment.engine,
    }
    return ", ".join(
        f"{item} {asked[item]} instead of {fitted_on[item]}"
        for item in FITTED_ON
        if asked[item] != fitted_on[item]
    )


def refuse(differences: str) -> None:
    """Raise CostMismatchError where there are any differences."""
    if differences:
        raise CostMismatchError(
            f"this fitted cost does not hold for {differences}; choose a cost fitted for it, "
            "cost=roofline, or cost.allow_mismatch=true"
        )


def describe(on: Mapping[str, Any], source: Mapping[str, Any], error: Mapping[str, Any]) -> str:
    """Engine, deployment, source and error of whole steps, for the summary."""
    step = error["step"]
    return (
        f"{on['engine']} {source['engine_version']}, {on['model']} on {on['gpu']} "
        f"tp{on['tp']} {on['dtype']} ({source['repository']} {source['commit'][:7]}); held-out "
        f"step error median {step['median']:.1%}, p90 {step['p90']:.1%}"
    )


def require(setting: str, tree: object, keys: tuple[str, ...]) -> None:
    """Refuse what is no mapping with these keys."""
    if not isinstance(tree, Mapping):
        raise SettingError(setting, tree, f"must be a mapping with {', '.join(keys)}")
    for key in keys:
        if key not in tree:
            raise SettingError(f"{setting}.{key}", None, f"is missing{nearest(key, tree)}")


def _text(setting: str, value: object) -> None:
    if not isinstance(value, str):
        raise SettingError(setting, value, "must be text")
