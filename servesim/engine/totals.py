"""Running sums over the steps of a run."""

from collections import Counter

from servesim.cost.durations import Durations
from servesim.records import StepPlan, StepTime, StepTotals


class Totals:
    """See `StepTotals`."""

    def __init__(self) -> None:
        self.steps = self.busy_ps = self.tokens = self.seqs = 0
        self.seq_ps = self.block_ps = self.max_blocks = self.max_seqs = 0
        self.skipped_steps = self.outside_any = 0
        self.outside: Counter[str] = Counter()

    def add_step(self, plan: StepPlan, time: StepTime, blocks_used: int) -> None:
        """Count one step."""
        duration, seqs = time.duration_ps, plan.num_seqs
        self.steps += 1
        self.busy_ps += duration
        self.tokens += plan.num_tokens
        self.seqs += seqs
        self.seq_ps += seqs * duration
        self.block_ps += blocks_used * duration
        if blocks_used > self.max_blocks:
            self.max_blocks = blocks_used
        if seqs > self.max_seqs:
            self.max_seqs = seqs
        if time.outside:
            self._add_outside(time.outside, 1)

    def add_run(
        self, seqs: int, durations: Durations, steps: int, used: int, taken: list[int]
    ) -> None:
        """Count the steps of a run at once.

        Args:
            seqs: requests in each step.
            durations: of the steps.
            steps: how many were taken.
            used: KV blocks held before the first one.
            taken: blocks that each of them took.
        """
        duration = durations.total(steps)
        self.steps += steps
        self.skipped_steps += steps - 1
        self.busy_ps += duration
        self.tokens += seqs * steps
        self.seqs += seqs * steps
        self.seq_ps += seqs * duration
        block_ps = used * duration
        total = durations.total
        for step, blocks in enumerate(taken):
            if blocks:  # held from the start of the step on
                used += blocks
                block_ps += blocks * (duration - total(step))
        self.block_ps += block_ps
        if used > self.max_blocks:
            self.max_blocks = used
        if seqs > self.max_seqs:
            self.max_seqs = seqs
        if durations.outside:
            self._add_outside(durations.outside, steps)

    def freeze(self) -> StepTotals:
        """The sums so far."""
        return StepTotals(**{**vars(self), "outside": dict(self.outside)})

    def _add_outside(self, axes: tuple[str, ...], steps: int) -> None:
        self.outside_any += steps
        for axis in axes:
            self.outside[axis] += steps
