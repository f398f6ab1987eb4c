"""Scheduler of transformers continuous batching, release 5.23.0, synchronous.

Source of every rule: transformers 5.23.0, `generation/continuous_batching/`: `scheduler.py` (who
is tried, in which order, and what makes it wait), `offloading_manager.py` (victims),
`continuous_api.py` (`prepare_next_batch`, `update_batch`), `cache.py`. Each step goes through all
candidates. One that does not fit is skipped and those behind it are tried: nobody blocks anybody.
"""

from collections.abc import Iterator, Mapping

from servesim.kv.pages import PageCache
from servesim.policies.order.fcfs import Fcfs
from servesim.records import (
    Admission,
    Emission,
    PrefixStats,
    Request,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.hf.batch import Batch, HFLimits, Step, ToTheBack
from servesim.scheduler.queued import QueuedEngine
from servesim.scheduler.rejections import beyond_cache, beyond_context
from servesim.scheduler.state import RequestState
from servesim.scheduler.victims import victim_position
from servesim.scheduler.waiting import WaitingQueue
from servesim.units import ps_to_seconds


class HFScheduler(QueuedEngine):
    """The scheduler of one engine in one run; `SteadyHFScheduler` skips steps as well.

    A request is active from its first pages on: those of a cached prefix, or of its first chunk.
    """

    def __init__(self, limits: HFLimits, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._limits = limits
        self._victim = setup.victim
        self._share = setup.cache.enable_prefix_caching
        self.block_size = limits.page_size
        self._pages = PageCache(limits.num_pages, limits.page_size, self._share)
        if type(setup.order) is Fcfs:
            self._waiting = WaitingQueue(ToTheBack())
        self._queries = self._hits = 0
        self._block_new_requests = False  # from a preemption until the next request ends

    @property
    def kv_blocks(self) -> int:
        """Pages that requests can hold."""
        return self._pages.num_pages

    @property
    def kv_blocks_used(self) -> int:
        """Pages held by requests; cached ones that nobody holds are none of them."""
        return self._pages.num_held

    @property
    def kv_slots_unused(self) -> int:
        """Slots of held pages that hold no token's KV."""
        return sum(s.table.num_blocks * self.block_size - s.computed for s in self._running)

    @property
    def num_free_pages(self) -> int:
        """Pages that can be allocated now; cached ones are none of them."""
        return self._pages.num_free

    @property
    def num_cached_pages(self) -> int:
        """Pages that no request holds and that are kept for their content."""
        return self._pages.num_cached

    @property
    def prefix_stats(self) -> PrefixStats:
        """Tokens looked up and found at first admissions; the engine itself does not count."""
        return PrefixStats(self._queries, self._hits)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Waiting requests in the order in which they are tried."""
        return tuple(state.request.rid for state in self._waiting.in_order())

    def reject_reason(self, request: Request) -> str | None:
        """What could never run to its end.

        The engine has no such check: a request that outgrows the whole cache ends its loop.
        """
        slots = self._pages.num_pages * self.block_size
        return beyond_context(request, self._max_model_len) or beyond_cache(request, slots)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; True, as the next plan may change with it."""
        table = self._pages.table(request.rid, request.content)
        state = RequestState(request, table, self._num_added, predicted_tokens)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        return True

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, hash full pages, stop what has ended.

        Pages that a request fills in the step that ends it are not hashed: the engine looks at
        its state when it has been set to finished already.
        """
        emitted, ended = [], []
        for work in plan.work:
            state = self._states[work.rid]
            if work.samples:
                state.known += 1
                emitted.append(Emission(work.rid, 1))
                if self._left(state) <= 0:
                    ended.append(state)
                    continue
            self._hash_full_pages(state)
        self._end(ended)
        return StepOutcome(tuple(emitted), tuple(s.request.rid for s in ended))

    def _plan(self, now_ps: int) -> StepPlan:
        now_s = ps_to_seconds(now_ps)
        self._waiting.refresh(now_s)
        step = Step()
        batch = self._pass(step)
        while batch.failed and not batch.work:
            if not self._make_room(batch.starved, step, now_s):
                raise RuntimeError("no request fits, and none can be preempted")
            batch = self._pass(step)
        if batch.starved:  # so that those who are left fit in the next step
            self._make_room(batch.starved, step, now_s)
        work = tuple(batch.work)
        return StepPlan(work, tuple(step.admitted), tuple(step.preempted), tuple(step.recomputed))

    def _pass(self, step: Step) -> Batch:
        """Go through the candidates once."""
        pages, batch = self._pages, Batch(self._limits)
        num_admitted = len(step.admitted)
        in_margin = self._meets_margin()
        for state in self._candidates():
            waits = not state.running
            if not in_margin and batch.work and (waits or state.mid_prefill):
                break
            if waits and (hits := pages.match(state.table, state.known)):
                self._activate(state, hits * self.block_size, step)
                waits = False
            n = min(state.known - state.computed, batch.tokens)
            by_table = batch.by_table and n == 1
            by_table = by_table and state.computed < self._limits.block_table_tokens
            if not by_table and batch.reads < state.computed:
                continue
            if not pages.extend(state.table, state.computed + n):
                batch.failed = True
                if not waits:
                    batch.starved.append((state, n))
                continue
            if waits:
                self._activate(state, 0, step)
            batch.by_table = by_table
            self._schedule(state, n, batch, step)
            if batch.is_full:
                break
        if len(step.admitted) > num_admitted:
            self._waiting.discard({a.rid for a in step.admitted[num_admitted:]})
        return batch

    def _candidates(self) -> Iterator[RequestState]:
        """Active requests as they are now, then the waiting ones, unless those are kept out."""
        decoding = [s for s in self._running if not s.mid_prefill]
        prefilling = [s for s in self._running if s.mid_prefill]
        first = [*prefilling, *decoding] if self._limits.prefill_first else [*decoding, *prefilling]
        yield from first
        if not self._block_new_requests:
            yield from self._waiting.in_order()

    def _meets_margin(self) -> bool:
        """Whether enough pages are free, if need be after all cached ones have been evicted."""
        margin, pages = self._limits.safety_margin, self._pages
        if pages.num_free / pages.num_pages >= margin:
            return True
        return pages.evict() and pages.num_free / pages.num_pages >= margin

    def _activate(self, state: RequestState, cached: int, step: Step) -> None:
        if self._share and not state.resumes:
            self._queries += state.known
            self._hits += cached
        step.admitted.append(Admission(state.request.rid, cached, state.resumes))
        state.computed = cached
        state.running = state.mid_prefill = True
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        self._running.append(state)

    def _schedule(self, state: RequestState, n: int, batch: Batch, step: Step) -> None:
        rid, computed = state.request.rid, state.computed
        samples = computed + n >= state.known
        batch.work.append(Work(rid, n, computed, 0, samples))
        batch.tokens -= n
        batch.reads -= computed
        batch.requests -= 1
        if computed < state.high_water:
            step.recomputed.append((rid, min(n, state.high_water - computed)))
        state.computed += n
        state.mid_prefill = not samples

    def _make_room(self, starved: list[tuple[RequestState, int]], step: Step, now_s: float) -> bool:
        """Evict all cached pages, then preempt starved requests until the others of them fit.

        Returns:
            Whether that freed anything.
        """
        pages = self._pages
        evicted = pages.evict()
        victims: list[RequestState] = []
        while starved and len(self._running) - len(victims) > 1:
            missing = sum(pages.missing(s.table, s.computed + n) for s, n in starved)
            if missing <= pages.num_free:
                break
            state, _ = starved.pop(self._choose(starved))
            pages.release(state.table, keep=False)
            self._num_preempted += 1
            state.lose_blocks(self._num_preempted)
            step.preempted.append(state.request.rid)
            victims.append(state)
        if not victims:
            return evicted
        gone = {state.request.rid for state in victims}
        self._running = [s for s in self._running if s.request.rid not in gone]
        for state in reversed(victims):
            self._waiting.push(state, now_s)
        self._block_new_requests = True
        return True

    def _choose(self, starved: list[tuple[RequestState, int]]) -> int:
        """Position of the next victim: the last candidate, or the policy's choice."""
        if self._victim is None:
            return len(starved) - 1
        return victim_position(self._victim, [state for state, _ in starved])

    def _free(self, state: RequestState) -> None:
        self._pages.release(state.table, keep=True)
        self._block_new_requests = False

    def _hash_full_pages(self, state: RequestState) -> bool:
        """After a step: others can find them now; whether one of them is such that they might."""
        return self._pages.complete(state.table, state.computed)
