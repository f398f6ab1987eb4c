"""For schedulers that cannot say how long a plan holds: the replica looks at every step."""

from collections.abc import Sequence

from servesim.records import NO_DECODES, Decodes, StepOutcome, StepPlan, Work


class StepsOnly:
    """The part of a `Scheduler` that is about steady steps, where there are none."""

    @property
    def pipeline_depth(self) -> int:
        """A step is over before the next one is planned."""
        return 1

    def steady_steps(self) -> int:
        """None."""
        return 0

    def next_decodes(self) -> Decodes:
        """Nobody goes on decoding as a group."""
        return NO_DECODES

    def advance(self, steps: int) -> Sequence[int]:
        """No steady step takes a block."""
        return [0] * steps

    def end_run(self) -> StepOutcome:
        """Nothing ends with steady steps."""
        return StepOutcome((), ())

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """Nobody."""
        return ()

    def full_work(self, plan: StepPlan) -> tuple[Work, ...]:
        """The work of the plan just made, request by request; ask before `update`."""
        return plan.work
