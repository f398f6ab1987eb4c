"""Data-parallel ranks in lock-step: several schedulers that plan, run and end a step together.

Where the experts of a mixture are split over data-parallel ranks, every rank takes part in every
forward pass, with a batch of its own or with a dummy one; so the ranks have one clock and their
plans one beginning and one end (vLLM 0.20 v1/engine/core.py, DPEngineCoreProc). To a
replica they are one engine: its plan is the sum of theirs, its blocks are all of theirs, and a run
of steady steps lasts as long as every rank's does.

Each rank has its own queue and KV cache; a router sends a request to one of them, for good.

Not modelled: when the last request has ended, vLLM's ranks go on with dummy steps until the count
of steps is a multiple of 32, and one that arrives meanwhile waits for the dummy step under way.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from servesim.policies.routing.base import EngineCounts, Router
from servesim.records import (
    NO_DECODES,
    PrefixStats,
    RankedDecodes,
    Request,
    StepOutcome,
    StepPlan,
)
from servesim.scheduler.base import Scheduler

IDLE = StepPlan(())
T = TypeVar("T")


class LockstepScheduler:
    """A `Scheduler` made of one per rank, all alike.

    Attributes:
        ranks: the schedulers.
        rank_of: by request number, the rank that it was sent to.
        now_ps: simulated time, kept by the replica: the router knows when it is asked.
    """

    def __init__(self, ranks: Sequence[Scheduler], router: Router) -> None:
        self.ranks = tuple(ranks)
        self.rank_of: dict[int, int] = {}
        self.now_ps = 0
        self._router = router
        # of each rank, whether it has something to do in the last plan, which a run goes on with
        self._planned = [False] * len(self.ranks)

    @property
    def num_speculative_tokens(self) -> int:
        """Those of each rank."""
        return self.ranks[0].num_speculative_tokens

    @property
    def num_running(self) -> int:
        """Of all ranks."""
        return sum(rank.num_running for rank in self.ranks)

    @property
    def num_waiting(self) -> int:
        """Of all ranks."""
        return sum(rank.num_waiting for rank in self.ranks)

    @property
    def kv_blocks(self) -> int:
        """Of all ranks; a request can hold those of its own."""
        return sum(rank.kv_blocks for rank in self.ranks)

    @property
    def kv_blocks_used(self) -> int:
        """Of all ranks."""
        return sum(rank.kv_blocks_used for rank in self.ranks)

    @property
    def block_size(self) -> int:
        """That of each rank."""
        return self.ranks[0].block_size

    @property
    def kv_slots_unused(self) -> int:
        """Of all ranks."""
        return sum(rank.kv_slots_unused for rank in self.ranks)

    @property
    def pipeline_depth(self) -> int:
        """That of each rank."""
        return self.ranks[0].pipeline_depth

    @property
    def prefix_stats(self) -> PrefixStats:
        """Of all ranks; a prefix that another rank holds is not found."""
        stats = [rank.prefix_stats for rank in self.ranks]
        return PrefixStats(sum(s.queries for s in stats), sum(s.hits for s in stats))

    def load(self) -> tuple[int, int]:
        """(requests waiting, KV blocks held) of all ranks."""
        loads = [rank.load() for rank in self.ranks]
        return sum(waiting for waiting, _ in loads), sum(used for _, used in loads)

    def observe(self, now_ps: int) -> None:
        """A step or a run has ended: each rank tells its counts, and the router may hear them."""
        counts = [EngineCounts(rank.num_waiting, rank.num_running) for rank in self.ranks]
        self._router.observe(now_ps, counts)

    def reject_reason(self, request: Request) -> str | None:
        """All ranks refuse the same requests."""
        return self.ranks[0].reject_reason(request)

    def add(self, request: Request, predicted_tokens: float) -> bool:
        """Send a request to a rank; False if a run of steady steps may go on."""
        chosen = self._router.route(request, self.now_ps)
        self.rank_of[request.rid] = chosen
        return self.ranks[chosen].add(request, predicted_tokens)

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step of every rank; one without requests gets nothing to do."""
        plans = tuple(
            rank.schedule(now_ps) if rank.num_running or rank.num_waiting else IDLE
            for rank in self.ranks
        )
        self._planned = [plan.num_seqs > 0 for plan in plans]
        return _together(plans)

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the tokens of every rank in.

        A plan without work is taken in as replicas do it: not by engines that plan ahead.
        """
        ahead = self.pipeline_depth > 1
        return _merged(
            rank.update(own, accepted)
            for rank, own in zip(self.ranks, plan.by_rank(), strict=True)
            if (own.num_seqs if ahead else own is not IDLE)
        )

    def steady_steps(self) -> int:
        """How many steps from now on only continue the decodes of every rank."""
        ahead = self.pipeline_depth > 1
        least = 0
        for rank, planned in zip(self.ranks, self._planned, strict=True):
            if rank.num_running or rank.num_waiting:
                steps = rank.steady_steps()
                if not steps:
                    return 0
                least = min(least, steps) if least else steps
            elif ahead and planned:
                return 0  # what is in flight there is in vain and has still to be taken in
        return least

    def next_decodes(self) -> RankedDecodes:
        """The batches of the first steady step."""
        return RankedDecodes.of(
            tuple(rank.next_decodes() if rank.num_running else NO_DECODES for rank in self.ranks)
        )

    def advance(self, steps: int) -> Sequence[int]:
        """Take steady steps; the blocks that each of them took on all ranks."""
        taken = [rank.advance(steps) for rank in self.ranks if rank.num_running]
        return [sum(blocks) for blocks in zip(*taken, strict=True)] if taken else [0] * steps

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        return _merged(rank.end_run() for rank in self.ranks if rank.num_running)

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the requests that steady steps continue."""
        return tuple(chain.from_iterable(rank.decoding() for rank in self.ranks))


def _together(plans: tuple[StepPlan, ...]) -> StepPlan:
    """The plans as one; requests of the first rank come first."""
    work, admitted, preempted, recomputed, decodes, left_group, padded_to, _ = zip(
        *plans, strict=True
    )
    return StepPlan(
        _flat(work),
        _flat(admitted),
        _flat(preempted),
        _flat(recomputed),
        RankedDecodes.of(decodes),
        _flat(left_group),
        max(padded_to),
        plans,
    )


def _merged(outcomes: Iterable[StepOutcome]) -> StepOutcome:
    told = list(outcomes)
    return StepOutcome(
        _flat(outcome.emitted for outcome in told),
        _flat(outcome.finished for outcome in told),
        _flat(outcome.decoded for outcome in told),
        sum(outcome.apart for outcome in told),
    )


def _flat(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))
