"""A cost whose steps are all longer or shorter by a factor: what it would be if the fit is off.

One factor for decode-only steps, one for steps with anything else. Durations stay whole
picoseconds, so runs of decodes are still their steps, bit for bit; they are listed, as rounding
makes them no progression.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from servesim import checks
from servesim.cost.base import LISTED_STEPS, CostModel, StepTimer
from servesim.cost.durations import Durations, Listed
from servesim.deployment import Deployment
from servesim.records import Decodes, StepPlan, StepTime, Work

MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another cost's times × a factor.

    Attributes:
        cost: the other one.
        decode: factor of steps in which every request computes one token and its drafts.
        prefill: factor of steps with a prefill chunk.
    """

    cost: CostModel
    decode: float = 1.0
    prefill: float = 1.0

    def __post_init__(self) -> None:
        checks.positive("decode", self.decode)
        checks.positive("prefill", self.prefill)

    def bind(self, deployment: Deployment) -> "ScaledTimer":
        """The timer for `deployment`, or CostMismatchError where the other cost does not hold."""
        ppm = (round(factor * MILLION) for factor in (self.decode, self.prefill))
        return ScaledTimer(self.cost.bind(deployment), *ppm)

    def mismatch(self, deployment: Deployment) -> str:
        """That of the other cost."""
        return self.cost.mismatch(deployment)

    def describe(self) -> str:
        """One line for the summary."""
        factors = f"decode steps × {self.decode:g}, steps with prefill × {self.prefill:g}"
        return f"{self.cost.describe()}; {factors}"

    def axis_range(self, axis: str) -> tuple[float, float]:
        """That of the other cost."""
        return self.cost.axis_range(axis)


class ScaledTimer:
    """Another timer's times × a factor, in millionths."""

    def __init__(self, timer: StepTimer, decode_ppm: int, prefill_ppm: int) -> None:
        self._timer = timer
        self._decode_ppm, self._prefill_ppm = decode_ppm, prefill_ppm

    def step_time(self, plan: StepPlan) -> StepTime:
        """The other timer's, scaled and rounded down to whole picoseconds."""
        time = self._timer.step_time(plan)
        ppm = self._decode_ppm if only_decodes(plan.work) else self._prefill_ppm
        return StepTime(time.duration_ps * ppm // MILLION, time.outside)

    def decode_run(self, decodes: Decodes, steps: int) -> Durations:
        """The same steps, listed; at most LISTED_STEPS."""
        run = self._timer.decode_run(decodes, min(steps, LISTED_STEPS))
        durations = [run.at(step) * self._decode_ppm // MILLION for step in range(run.steps)]
        return Listed(durations, run.outside)


def only_decodes(work: Sequence[Work]) -> bool:
    """Whether no request computes more than one token and its drafts."""
    return all(item.num_tokens == 1 + item.num_drafts for item in work)
