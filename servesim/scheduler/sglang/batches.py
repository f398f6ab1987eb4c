"""How SGLang forms its batches: prefills first and alone, else a token for all who run.

Source: SGLang 0.5.23, managers/scheduler.py (`get_next_batch_to_run`, `_get_new_batch_prefill_raw`,
`update_running_batch`), managers/schedule_batch.py (`retract_decode`).
"""

from collections import deque

from servesim.kv.radix_cache import RadixCache
from servesim.records import Admission, StepPlan, Work
from servesim.scheduler.sglang.decode import DecodeMemory
from servesim.scheduler.sglang.limits import SGLangLimits
from servesim.scheduler.sglang.prefill import Prefill, PrefillAdder, Verdict
from servesim.scheduler.sglang.queue import SGLangQueue
from servesim.scheduler.sglang.ratio import NewTokenRatio
from servesim.scheduler.sglang.retract import Retraction
from servesim.scheduler.sglang.state import SGLangState


class SGLangBatches:
    """The part of the scheduler that decides who computes what.

    It knows who waits, who runs (all of them decode) and who is in mid-prefill, at most one.
    """

    def __init__(
        self,
        limits: SGLangLimits,
        cache: RadixCache,
        queue: SGLangQueue,
        retraction: Retraction,
        ratio: NewTokenRatio,
    ) -> None:
        self._limits, self._cache, self._waiting = limits, cache, queue
        self._memory = DecodeMemory(cache)
        self._retraction, self._ratio = retraction, ratio
        self._states: dict[int, SGLangState] = {}
        self._running: list[SGLangState] = []  # all of them decode
        self._chunked: SGLangState | None = None
        self._prefills: list[Prefill] = []  # of the latest plan, not yet among those who run
        self._mixed: list[SGLangState] = []  # decodes that ride along with them
        # by plan: its requests that sample, each with its computed tokens if it is a prefill, or 0
        self._in_flight: deque[dict[int, int]] = deque()
        self._some_ended = False
        self._batch_is_full = False
        self._num_admitted = self._processed_tokens = 0
        self._queries = self._hits = 0

    @property
    def num_running(self) -> int:
        """Admitted requests, the one in mid-prefill included."""
        return len(self._states) - len(self._waiting.entries)

    def _plan(self, now_s: float) -> StepPlan:
        """A prefill batch if one can be formed, else a decode batch; without either, no work."""
        self._merge()
        plan = self._prefill_plan(now_s)
        if plan is None:
            plan = self._decode_plan(now_s)
        if plan.work:
            prefills = {p.state.request.rid: p.first + p.num_tokens for p in self._prefills}
            flying = {work.rid: prefills.get(work.rid, 0) for work in plan.work if work.samples}
            self._in_flight.append(flying)
        return plan

    def _prefill_plan(self, now_s: float) -> StepPlan | None:
        chunked, running = self._chunked, self._running
        if not running:
            self._batch_is_full = False  # nobody is left whose end would clear it
        if chunked is None:
            if self._batch_is_full or not self._waiting.entries:
                return None
            if self._slots() <= 0:
                self._batch_is_full = True
                return None
        self._waiting.sort(now_s, self._processed_tokens)
        mixed = len(running) if self._limits.enable_mixed_chunk else 0
        adder = PrefillAdder(self._cache, self._limits.prefill, running, self._ratio.current, mixed)
        if chunked is not None:
            adder.continue_chunk(chunked)
            if not adder.batch:
                return None
        admitted = self._admit(adder)
        if not adder.batch:
            return None
        self._chunked = adder.chunked
        return self._launch(adder.batch, admitted)

    def _admit(self, adder: PrefillAdder) -> tuple[Admission, ...]:
        """Take from the head of the queue until one does not fit."""
        entries, taken = self._waiting.entries, 0
        slots = self._slots() + len(adder.batch)
        admitted = []
        for state in entries:
            if adder.verdict() is Verdict.OTHER:
                break
            if len(adder.batch) >= slots:
                self._batch_is_full = True
            if self._batch_is_full:
                break
            before = len(adder.batch)
            verdict = adder.add(state)
            if len(adder.batch) > before:
                taken += 1
                admitted.append(self._admission(state))
            if verdict is not Verdict.CONTINUE:
                if verdict is Verdict.NO_TOKEN:
                    self._batch_is_full = bool(adder.batch or self._running)
                break
        del entries[:taken]
        return tuple(admitted)

    def _slots(self) -> int:
        """Requests that can still be admitted."""
        return self._limits.max_running_requests - self.num_running

    def _admission(self, state: SGLangState) -> Admission:
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        state.retracted = False
        if not state.requeued:
            self._queries += state.request.prompt_tokens
            self._hits += state.matched
        return Admission(state.request.rid, state.matched, state.requeued > 0)

    def _launch(self, batch: list[Prefill], admitted: tuple[Admission, ...]) -> StepPlan:
        """Allocate the batch and, in mixed mode, let the decodes ride along if they fit, too."""
        cache = self._cache
        tokens = sum(prefill.num_tokens for prefill in batch)
        # with larger pages the engine asks for one more per request than can be needed
        cache.free_up(tokens if cache.page_size == 1 else tokens + len(batch) * cache.page_size)
        cache.take(sum(cache.growth(first, num_tokens) for _, first, num_tokens in batch))
        self._prefills = batch
        work = [_prefill_work(prefill) for prefill in batch]
        recomputed = [
            (state.request.rid, min(state.high_water, first + num_tokens) - first)
            for state, first, num_tokens in batch
            if state.high_water > first
        ]
        if self._limits.enable_mixed_chunk and self._running:
            self._drop_finishing()
        if self._limits.enable_mixed_chunk and self._running and self._memory.fits(self._running):
            work += self._decode_work()
            tokens += len(self._running)
            self._mixed, self._running = self._running, []
        self._processed_tokens += tokens
        return StepPlan(tuple(work), admitted, recomputed=tuple(recomputed))

    def _decode_plan(self, now_s: float) -> StepPlan:
        finishing = self._drop_finishing()
        if not self._running:
            return StepPlan(())
        if self._memory.fits(self._running):
            self._ratio.decay()
            return StepPlan(tuple(self._decode_work()))
        if finishing:
            return StepPlan(())  # they are about to free what is missing
        # a request in mid-prefill that cannot go on frees nothing by itself
        keep = 0 if self._chunked is not None else 1
        self._running, victims = self._retraction.retract(self._running, keep)
        self._ratio.retracted(self._running)
        for state in victims:
            self._waiting.push(state, now_s, self._processed_tokens)
        self._batch_is_full = False
        preempted = tuple(state.request.rid for state in victims)
        return StepPlan(tuple(self._decode_work()), preempted=preempted)

    def _drop_finishing(self) -> bool:
        """Take those out whose token in flight is the last that their cap lets them have."""
        if not self._in_flight:
            return False
        flying = self._in_flight[0]
        left = [
            state
            for state in self._running
            if state.request.rid not in flying or state.generated + 1 < state.max_new_tokens
        ]
        if len(left) == len(self._running):
            return False
        self._running, self._batch_is_full = left, False
        return True

    def _decode_work(self) -> list[Work]:
        """Allocate a token for everyone who runs; that it fits has been seen to."""
        self._memory.take(self._running)
        work = []
        for state in self._running:
            work.append(Work(state.request.rid, 1, state.computed, 0, True))
            state.computed += 1
        return work

    def _end(self, state: SGLangState) -> None:
        self._cache.release(state.row, state.computed, keep=True)
        del self._states[state.request.rid]
        self._some_ended = True

    def _merge(self) -> None:
        """Prefills join those who run, ended requests leave, a chunk enters the tree."""
        alive = self._states
        if self._some_ended:
            left = [state for state in self._running if state.request.rid in alive]
            if len(left) < len(self._running):
                self._running, self._batch_is_full = left, False
            self._some_ended = False
        if not self._prefills:
            return
        if self._chunked is not None:
            self._cache.checkpoint(self._chunked.row, self._chunked.computed)
        last = [*(prefill.state for prefill in self._prefills), *self._mixed]
        joining = [s for s in last if s.request.rid in alive and s is not self._chunked]
        if len(joining) < len(last) or (joining and not self._running):
            self._batch_is_full = False
        self._running += joining
        self._prefills, self._mixed = [], []


def _prefill_work(prefill: Prefill) -> Work:
    state, first, num_tokens = prefill
    return Work(state.request.rid, num_tokens, first, 0, state.computed == state.known)
