"""What a measured cost says of itself: for which deployment it holds, its source, its error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from servesim import checks
from servesim.cost import residuals
from servesim.cost.fit_range import FitRange
from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError, nearest

FITTED_ON = ("model", "gpu", "tp", "dtype", "kv_dtype", "engine")
SOURCE = ("repository", "commit", "licence", "files", "engine_version", "fitted_at")
MEASURES = ("median", "p90", "worst")  # of |error| on held-out points, as shares


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOn:
    """A cost that holds for one deployment, and refuses any other one.

    Attributes:
        fitted_on: model, gpu, tp, dtype, kv_dtype and engine that were measured.
        source: repository, commit, licence, files, engine_version and fitted_at (a date); further
            entries, such as where host times come from, are for people.
        fit_range: smallest and largest measured value of each axis.
        held_out_error: for "step", the median, p90 and worst of the absolute relative error on
            held-out points; further entries, by part, are for people.
        allow_mismatch: bind to a deployment that differs from `fitted_on` all the same.
        residuals: see servesim/cost/residuals.py, or None.

    Raises:
        SettingError: an entry is missing or of the wrong kind; names it by its path.
    """

    KIND: ClassVar[str]  # what it is, in the words of `describe`

    fitted_on: Mapping[str, Any]
    source: Mapping[str, Any]
    fit_range: Mapping[str, Any]
    held_out_error: Mapping[str, Any]
    allow_mismatch: bool = False
    residuals: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        checks.flag("allow_mismatch", self.allow_mismatch)
        _check(self.fitted_on, self.source, self.held_out_error)
        FitRange(self.fit_range)
        residuals.parse(self.residuals)

    def mismatch(self, deployment: Deployment) -> str:
        """What of `deployment` differs from `fitted_on`, in words, or ""."""
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

    def refuse_others(self, deployment: Deployment) -> None:
        """Raise CostMismatchError where it does not hold for `deployment`, unless allowed to."""
        if not self.allow_mismatch and (differences := self.mismatch(deployment)):
            raise CostMismatchError(
                f"this fitted cost does not hold for {differences}; choose a cost fitted for it, "
                "cost=roofline, or cost.allow_mismatch=true"
            )

    def describe(self) -> str:
        """Engine, deployment, source and error of whole steps, in one line for the summary."""
        on, source, step = self.fitted_on, self.source, self.held_out_error["step"]
        return (
            f"{self.KIND} {on['engine']} {source['engine_version']}, {on['model']} on {on['gpu']} "
            f"tp{on['tp']} {on['dtype']} ({source['repository']} {source['commit'][:7]}); held-out "
            f"step error median {step['median']:.1%}, p90 {step['p90']:.1%}"
        )

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Smallest and largest measured value of `axis`, or UnknownChoiceError."""
        return FitRange(self.fit_range).of(axis)


def _check(
    fitted_on: Mapping[str, Any], source: Mapping[str, Any], held_out_error: Mapping[str, Any]
) -> None:
    """Refuse what lacks an entry or has one of the wrong kind; further entries are for people."""
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
