"""A regression fitted to measured operator times, for one model on one GPU.

A value whose fields are its YAML, as `python -m validation.fit` writes it: coefficients in
microseconds, what they were fitted on, the range of each axis, the source, and the error on points
held out of the fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from servesim.cost import coefficients as parts
from servesim.cost.fit_range import FitRange
from servesim.cost.fitted_timer import FittedTimer
from servesim.cost.measured_on import MeasuredOn
from servesim.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(MeasuredOn):
    """Step time from coefficients that hold for one deployment.

    Attributes, beside those of `MeasuredOn`:
        coefficients: see servesim/cost/coefficients.py.
    """

    KIND = "fitted to"

    coefficients: Mapping[str, Any]

    def __post_init__(self) -> None:
        MeasuredOn.__post_init__(self)  # slots rule out super() without arguments
        parts.parse(self.coefficients)

    def bind(self, deployment: Deployment) -> FittedTimer:
        """The timer for `deployment`.

        Raises:
            CostMismatchError: it differs from what was measured and `allow_mismatch` is false.
        """
        self.refuse_others(deployment)
        layers = deployment.model.num_layers
        return FittedTimer(parts.parse(self.coefficients), layers, FitRange(self.fit_range))
