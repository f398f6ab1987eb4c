"""The seam between what a step holds and how long it takes."""

from typing import Protocol

from servesim.deployment import Deployment
from servesim.records import StepPlan, StepTime


class StepTimer(Protocol):
    """A cost model bound to one deployment."""

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time from one step's start to the next one's, host work included.

        The same plan always takes the same time. Only + − × ÷, sqrt and comparisons on Python
        floats: they give the same bits on every machine, `exp`, `pow` and numpy sums do not.
        """


class CostModel(Protocol):
    """Coefficients or efficiencies; a value whose fields are its YAML."""

    def bind(self, deployment: Deployment) -> StepTimer:
        """The timer for one deployment, or CostMismatchError where this cost does not hold."""

    def describe(self) -> str:
        """One line for the summary: what it is and where it comes from."""

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Fitted range of an axis that a step was outside of."""
