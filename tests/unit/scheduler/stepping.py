"""A scheduler driven by hand: names for requests, one readable row per step, no clock."""

from collections import deque
from typing import NamedTuple

from servesim.content import Content, Unique
from servesim.hardware.gpu import GPU
from servesim.policies.order.base import Order
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.victim.base import Victim
from servesim.records import Request, StepOutcome, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.v1 import VllmV1
from servesim.units import PS_PER_S

ANY_GPU = GPU("any", 80.0, 1.0, {}, 1.0)


class Row(NamedTuple):
    """One step: what was scheduled, who was preempted, what came out, free blocks."""

    batch: str
    preempted: str = ""
    emitted: str = ""
    finished: str = ""
    free: str = ""  # after schedule → after update


class Stepper:
    """An engine with the limits of the worked examples unless told otherwise."""

    def __init__(
        self,
        *,
        blocks: int = 9,
        block_size: int = 4,
        caching: bool = True,
        max_len: int = 32,
        order: Order | None = None,
        victim: Victim | None = None,
        **settings: object,
    ) -> None:
        limits = {"max_num_batched_tokens": 16, "max_num_seqs": 4, **settings}
        cache = CacheSize(blocks, block_size, caching)
        self.settings = VllmV1(**limits)
        setup = EngineSetup(ANY_GPU, cache, max_len, order or Fcfs(), victim)
        self.scheduler = self.settings.start(setup, stepwise=True)
        self.names: list[str] = []
        self.plan = StepPlan(())
        self.outstanding: deque[StepPlan] = deque()
        self.recomputed: dict[str, int] = {}
        self.cached: dict[str, int] = {}

    def add(
        self,
        name: str,
        prompt: int,
        output: int,
        *,
        arrived_s: int = 0,
        priority: int = 0,
        predicted: float = 0.0,
        max_tokens: int | None = None,
        content: Content = Unique(),  # noqa: B008  frozen
    ) -> None:
        request = Request(
            rid=len(self.names),
            arrival_ps=arrived_s * PS_PER_S,
            prompt_tokens=prompt,
            output_tokens=output,
            max_tokens=output if max_tokens is None else max_tokens,
            priority=priority,
            content=content,
        )
        assert self.scheduler.reject_reason(request) is None
        self.names.append(name)
        self.scheduler.add(request, predicted)

    def step(self, accepted: dict[str, int] | None = None, *, now_s: int = 0) -> Row:
        """Plan a step and take in the one that is due: with asynchronous scheduling the one before.

        `accepted` are the accepted drafts of the latter by name, none where it is silent.
        """
        scheduler = self.scheduler
        self.plan = plan = scheduler.schedule(now_s * PS_PER_S)
        free = scheduler.num_free_blocks
        outcome = self._take_in(accepted or {})
        for rid, tokens in plan.recomputed:
            self.recomputed[self.names[rid]] = self.recomputed.get(self.names[rid], 0) + tokens
        for admission in plan.admitted:
            self.cached[self.names[admission.rid]] = admission.cached_tokens
        return Row(
            " ".join(f"{self.names[w.rid]}{w.num_tokens}" for w in plan.work),
            " ".join(self.names[rid] for rid in plan.preempted),
            " ".join(f"{self.names[e.rid]}{e.num_tokens}" for e in outcome.emitted),
            " ".join(self.names[rid] for rid in outcome.finished),
            f"{free}→{scheduler.num_free_blocks}",
        )

    def _take_in(self, accepted: dict[str, int]) -> StepOutcome:
        scheduler, outstanding = self.scheduler, self.outstanding
        works = bool(self.plan.work)
        if works or scheduler.pipeline_depth == 1:
            outstanding.append(self.plan)
        if not outstanding or (works and len(outstanding) < scheduler.pipeline_depth):
            return StepOutcome((), ())
        due = outstanding.popleft()
        by_rid = {w.rid: accepted.get(self.names[w.rid], 0) for w in due.work if w.num_drafts}
        outcome = scheduler.update(due, by_rid)
        drafts = self.settings.num_speculative_tokens
        if drafts:
            scheduler.propose({w.rid: drafts for w in due.work if w.samples})
        return outcome

    def abort(self, name: str) -> bool:
        """The client gives up."""
        return self.scheduler.abort(self.names.index(name))

    def steps(self, count: int) -> list[str]:
        """The batches of `count` steps."""
        return [self.step().batch for _ in range(count)]

    def drafts(self) -> str:
        """Drafts verified in the last step, by name."""
        return " ".join(
            f"{self.names[w.rid]}{w.num_drafts}" for w in self.plan.work if w.num_drafts
        )

    def running(self) -> str:
        return " ".join(self.names[rid] for rid in self.scheduler.running)

    def run_out(self, limit: int = 500) -> list[Row]:
        """Step until nobody is left."""
        rows = []
        while self.scheduler.num_running or self.scheduler.num_waiting:
            rows.append(self.step())
            assert len(rows) < limit, "the engine makes no progress"
        return rows
