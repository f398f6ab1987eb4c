"""Replicas whose scheduler is made of data-parallel ranks: they tell it the time.

Nothing else differs: the ranks' plans make one step (`scheduler.lockstep`), whose time is that of
the slowest rank (`cost.lockstep`).
"""

from dataclasses import replace

from servesim.engine.pipelined import PipelinedReplica
from servesim.engine.replica import Replica
from servesim.records import Request, RequestRecord
from servesim.scheduler.base import Scheduler
from servesim.scheduler.lockstep import LockstepScheduler


class _Ranks(Replica):
    """A request is routed by what ranks have told of themselves up to its arrival."""

    _scheduler: LockstepScheduler

    def _receive(self, request: Request, predicted_tokens: float, now: int) -> None:
        self._scheduler.now_ps = now
        super()._receive(request, predicted_tokens, now)

    def _apply(self, now: int) -> None:
        super()._apply(now)
        self._scheduler.observe(now)


class LockstepReplica(_Ranks):
    """For ranks that plan when a step is over."""


class PipelinedLockstepReplica(_Ranks, PipelinedReplica):
    """For ranks that plan a step while the one before it runs."""


def replica_for(scheduler: Scheduler) -> type[Replica]:
    """Which kind of replica drives it."""
    ahead = scheduler.pipeline_depth > 1
    if isinstance(scheduler, LockstepScheduler):
        return PipelinedLockstepReplica if ahead else LockstepReplica
    return PipelinedReplica if ahead else Replica


def with_ranks(
    requests: tuple[RequestRecord, ...], scheduler: Scheduler
) -> tuple[RequestRecord, ...]:
    """The records with the data-parallel rank that each request was sent to."""
    if not isinstance(scheduler, LockstepScheduler):
        return requests
    rank_of = scheduler.rank_of
    return tuple(replace(request, rank=rank_of.get(request.rid)) for request in requests)
