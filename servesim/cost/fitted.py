"""A regression fitted to measured operator times, for one model on one GPU.

A value whose fields are its YAML, as `python -m validation.fit` writes it: coefficients in
microseconds, what they were fitted on, the range of each axis, the source, and the error on points
held out of the fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servesim import checks
from servesim.cost import coefficients as parts
from servesim.cost.fit_range import FitRange
from servesim.cost.fitted_timer import FittedTimer
from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError, nearest

FITTED_ON = ("model", "gpu", "tp", "dtype", "kv_dtype", "engine")
SOURCE = ("repository", "commit", "licence", "files", "engine_version", "fitted_at")
MEASURES = ("median", "p90", "worst")  # of |error| on held-out points, as shares


@dataclass(frozen=True, slots=True)
class Fitted:
    """Step time from coefficients that hold for one deployment.

    Attributes:
        fitted_on: model, gpu, tp, dtype, kv_dtype and engine that were measured.
        source: repository, commit, licence, files, engine_version and fitted_at (a date).
        fit_range: smallest and largest measured value of each axis.
        held_out_error: by part and for "step", the median, p90 and worst of the absolute relative
            error on held-out points; further entries are for people.
        coefficients: see servesim/cost/coefficients.py.
        allow_mismatch: bind to a deployment that differs from `fitted_on` all the same.
    """

    fitted_on: Mapping[str, Any]
    source: Mapping[str, Any]
    fit_range: Mapping[str, Any]
    held_out_error: Mapping[str, Any]
    coefficients: Mapping[str, Any]
    allow_mismatch: bool = False

    def __post_init__(self) -> None:
        checks.flag("allow_mismatch", self.allow_mismatch)
        _require("fitted_on", self.fitted_on, FITTED_ON)
        _require("source", self.source, SOURCE)
        _require("held_out_error", self.held_out_error, ("step",))
        _require("held_out_error.step", self.held_out_error["step"], MEASURES)
        for measure in MEASURES:
            share = self.held_out_error["step"][measure]
            checks.not_negative(f"held_out_error.step.{measure}", share)
        for item in FITTED_ON:
            if item == "tp":
                checks.whole("fitted_on.tp", self.fitted_on["tp"], at_least=1)
            else:
                _text(f"fitted_on.{item}", self.fitted_on[item])
        for item in SOURCE:
            _text(f"source.{item}", self.source[item])
        FitRange(self.fit_range)
        parts.parse(self.coefficients)

    def bind(self, deployment: Deployment) -> FittedTimer:
        """The timer for `deployment`.

        Raises:
            CostMismatchError: it differs from what was measured and `allow_mismatch` is false.
        """
        mismatch = self.mismatch(deployment)
        if mismatch and not self.allow_mismatch:
            raise CostMismatchError(
                f"this fitted cost does not hold for {mismatch}; choose a cost fitted for it, "
                "cost=roofline, or cost.allow_mismatch=true"
            )
        layers = deployment.model.num_layers
        return FittedTimer(parts.parse(self.coefficients), layers, FitRange(self.fit_range))

    def mismatch(self, deployment: Deployment) -> str:
        """What differs from `fitted_on`, in words."""
        asked = {
            "model": deployment.model.name,
            "gpu": deployment.gpu.name,
            "tp": deployment.tp,
            "dtype": deployment.dtype,
            "kv_dtype": deployment.kv_dtype,
            "engine": deployment.engine,
        }
        return ", ".join(
            f"{item} {asked[item]} instead of {self.fitted_on[item]}"
            for item in FITTED_ON
            if asked[item] != self.fitted_on[item]
        )

    def describe(self) -> str:
        """One line for the summary."""
        on, source, step = self.fitted_on, self.source, self.held_out_error["step"]
        return (
            f"fitted to {on['engine']} {source['engine_version']}, {on['model']} on {on['gpu']} "
            f"tp{on['tp']} {on['dtype']} ({source['repository']} {source['commit'][:7]}); held-out "
            f"step error median {step['median']:.1%}, p90 {step['p90']:.1%}"
        )

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Smallest and largest fitted value of `axis`, or UnknownChoiceError."""
        return FitRange(self.fit_range).of(axis)


def _require(setting: str, tree: object, keys: tuple[str, ...]) -> None:
    if not isinstance(tree, Mapping):
        raise SettingError(setting, tree, f"must be a mapping with {', '.join(keys)}")
    for key in keys:
        if key not in tree:
            raise SettingError(f"{setting}.{key}", None, f"is missing{nearest(key, tree)}")


def _text(setting: str, value: object) -> None:
    if not isinstance(value, str):
        raise SettingError(setting, value, "must be text")
