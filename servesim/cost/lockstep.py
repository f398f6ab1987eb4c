"""How long a step of data-parallel ranks in lock-step takes: as long as the slowest rank's.

A rank's own time depends on the others where they share work: experts that are split over the
ranks see the tokens of all of them. A timer that knows of this has `beside`.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from servesim.cost.base import LISTED_STEPS, StepTimer
from servesim.cost.durations import Durations, Listed, Progression, longer
from servesim.records import Decodes, RankedDecodes, StepPlan, StepTime

# what a rank without requests runs: one token (vLLM 0.20 v1/worker/gpu_worker.py,
# execute_dummy_batch), a decode without a past
DUMMY = StepPlan((), decodes=Decodes(1, 1, 1))


@runtime_checkable
class SharingTimer(StepTimer, Protocol):
    """A timer of a rank that shares experts with other data-parallel ranks."""

    def beside(self, tokens: tuple[int, ...]) -> StepTimer:
        """The timer of this rank's steps while each of the others runs so many tokens."""


class LockstepTimer:
    """A `StepTimer` for plans that are made of ranks' plans.

    Args:
        timer: of one rank; one without `beside` takes each rank as if it were alone.
    """

    def __init__(self, timer: StepTimer) -> None:
        self._timer = timer

    def step_time(self, plan: StepPlan) -> StepTime:
        """The slowest rank's; outside the fitted range where any is that has requests."""
        plans = plan.by_rank()
        working = [own if own.num_seqs else DUMMY for own in plans]
        timers = self._timers([own.num_tokens for own in working])
        times = [timer.step_time(own) for timer, own in zip(timers, working, strict=True)]
        return StepTime(max(time.duration_ps for time in times), _outside(plans, times))

    def decode_run(self, decodes: Decodes, steps: int) -> Durations:
        """The slowest rank's, for as long as the same one is."""
        ranks = decodes.ranks if isinstance(decodes, RankedDecodes) else (decodes,)
        timers = self._timers([own.seqs or 1 for own in ranks])
        runs: list[Durations] = []
        idle: list[StepTime] = []
        for timer, own in zip(timers, ranks, strict=True):
            if own.seqs:
                runs.append(timer.decode_run(own, steps))
            else:
                idle.append(timer.step_time(DUMMY))
        runs += [Progression(time.duration_ps, 0, steps) for time in idle]
        outside = _union([run.outside for run in runs])
        return _slowest(runs, outside)

    def _timers(self, tokens: Sequence[int]) -> list[StepTimer]:
        timer = self._timer
        if not isinstance(timer, SharingTimer):
            return [timer] * len(tokens)
        return [timer.beside((*tokens[:i], *tokens[i + 1 :])) for i in range(len(tokens))]


def _slowest(runs: Sequence[Durations], outside: tuple[str, ...]) -> Durations:
    """The longest of each step; of progressions, for as long as one rank is the slowest."""
    steps = min(run.steps for run in runs)
    lines = [(r.first_ps, r.increment_ps) for r in runs if isinstance(r, Progression)]
    if len(lines) < len(runs):
        listed = range(min(steps, LISTED_STEPS))
        return Listed([max(run.at(step) for run in runs) for step in listed], outside)
    first_ps, increment_ps = lines[0]
    for line in lines[1:]:
        first_ps, increment_ps, steps = longer((first_ps, increment_ps), line, steps)
    return Progression(first_ps, increment_ps, steps, outside)


def _outside(plans: Sequence[StepPlan], times: Sequence[StepTime]) -> tuple[str, ...]:
    pairs = zip(plans, times, strict=True)
    return _union([time.outside for plan, time in pairs if plan.num_seqs])


def _union(parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(axis for part in parts for axis in part))
