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
from servesim.cost import measured_on, residuals
from servesim.cost.fit_range import FitRange
from servesim.cost.fitted_timer import FittedTimer
from servesim.deployment import Deployment


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
        residuals: see servesim/cost/residuals.py, or None.
    """

    fitted_on: Mapping[str, Any]
    source: Mapping[str, Any]
    fit_range: Mapping[str, Any]
    held_out_error: Mapping[str, Any]
    coefficients: Mapping[str, Any]
    allow_mismatch: bool = False
    residuals: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        checks.flag("allow_mismatch", self.allow_mismatch)
        measured_on.check(self.fitted_on, self.source, self.held_out_error)
        FitRange(self.fit_range)
        residuals.parse(self.residuals)
        parts.parse(self.coefficients)

    def bind(self, deployment: Deployment) -> FittedTimer:
        """The timer for `deployment`.

        Raises:
            CostMismatchError: it differs from what was measured and `allow_mismatch` is false.
        """
        if not self.allow_mismatch:
            measured_on.refuse(self.mismatch(deployment))
        layers = deployment.model.num_layers
        return FittedTimer(parts.parse(self.coefficients), layers, FitRange(self.fit_range))

    def mismatch(self, deployment: Deployment) -> str:
        """What differs from `fitted_on`, in words."""
        return measured_on.mismatch(self.fitted_on, deployment)

    def describe(self) -> str:
        """One line for the summary."""
        told = measured_on.describe(self.fitted_on, self.source, self.held_out_error)
        return f"fitted to {told}"

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Smallest and largest fitted value of `axis`, or UnknownChoiceError."""
        return FitRange(self.fit_range).of(axis)
