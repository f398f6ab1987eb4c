"""The seam between what a step holds and how long it takes."""

from typing import Protocol

from servesim.cost.durations import Durations, Listed
from servesim.deployment import Deployment
from servesim.records import Decodes, StepPlan, StepTime

LISTED_STEPS = 64  # beyond, a run that is cut short has evaluated too much in vain


class StepTimer(Protocol):
    """A cost model bound to one deployment."""

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time from one step's start to the next one's, host work included.

        The same plan always takes the same time. Only + − × ÷, sqrt and comparisons on Python
        floats: they give the same bits on every machine, `exp`, `pow` and numpy sums do not.
        """

    def decode_run(self, decodes: Decodes, steps: int) -> Durations:
        """Times of further steps in which these requests just go on decoding.

        The same, to the picosecond, as `step_time` of each of them. May cover fewer than `steps`
        steps, but at least one. A timer without a closed form returns `listed_run(...)`.

        Args:
            decodes: the batch of the first of the steps.
            steps: how many are wanted.
        """


class CostModel(Protocol):
    """Coefficients or efficiencies; a value whose fields are its YAML."""

    def bind(self, deployment: Deployment) -> StepTimer:
        """The timer for one deployment, or CostMismatchError where this cost does not hold."""

    def mismatch(self, deployment: Deployment) -> str:
        """What `deployment` differs in from the one this cost holds for, in words, or "".

        Where `bind` gives a timer all the same, the user has asked for that.
        """

    def describe(self) -> str:
        """One line for the summary: what it is and where it comes from."""

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Fitted range of an axis that a step was outside of."""


def listed_run(timer: StepTimer, decodes: Decodes, steps: int) -> Durations:
    """A run's times one by one, for timers of any shape; ends where the fitted range does."""
    durations: list[int] = []
    outside: tuple[str, ...] = ()
    for step in range(min(steps, LISTED_STEPS)):
        time = timer.step_time(StepPlan((), decodes=decodes.later(step)))
        if not durations:
            outside = time.outside
        elif time.outside != outside:
            break
        durations.append(time.duration_ps)
    return Listed(durations, outside)
