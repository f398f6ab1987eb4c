"""SGLang's scheduler: prefill batches first and alone, decode batches of all who run.

Source: SGLang 0.5.23, managers/scheduler.py (`get_next_batch_to_run`, `_get_new_batch_prefill_raw`,
`update_running_batch`), managers/schedule_batch.py (`retract_decode`),
managers/scheduler_components/batch_result_processor.py.
"""

from collections import deque
from collections.abc import Mapping

from servesim.kv.radix_cache import RadixCache
from servesim.records import (
    Admission,
    Decodes,
    Emission,
    PrefixStats,
    Request,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.sglang_decode import DecodeMemory
from servesim.scheduler.sglang_limits import SGLangLimits
from servesim.scheduler.sglang_prefill import Prefill, PrefillAdder, Verdict
from servesim.scheduler.sglang_queue import SGLangQueue
from servesim.scheduler.sglang_ratio import NewTokenRatio
from servesim.scheduler.sglang_retract import Retraction
from servesim.scheduler.sglang_state import SGLangState
from servesim.units import ps_to_seconds

_NOTHING = StepOutcome((), ())


class SGLangScheduler:
    """One engine: a queue, a running batch, at most one request in mid-prefill, a radix cache.

    The pages of `kv_blocks` are those of the radix cache; used are the ones that requests own or
    lock.
    """

    num_speculative_tokens = 0

    def __init__(
        self,
        limits: SGLangLimits,
        cache: RadixCache,
        queue: SGLangQueue,
        retraction: Retraction,
        ratio: NewTokenRatio,
        stepwise: bool,
    ) -> None:
        self._limits, self._cache, self._waiting = limits, cache, queue
        self._memory = DecodeMemory(cache)
        self._retraction, self._ratio = retraction, ratio
        self._overlaps = not limits.disable_overlap_schedule
        self._stepwise = stepwise or self._overlaps
        self._states: dict[int, SGLangState] = {}
        self._running: list[SGLangState] = []  # all of them decode
        self._chunked: SGLangState | None = None
        self._prefills: list[Prefill] = []  # of the latest plan, not yet among those who run
        self._mixed: list[SGLangState] = []  # decodes that ride along with them
        # by plan: its requests that sample, each with its computed tokens if it is a prefill, or 0
        self._in_flight: deque[dict[int, int]] = deque()
        self._some_ended = False
        self._batch_is_full = False
        self._in_unison = False  # everyone who runs had a token in the last step
        self._skipping = False  # nobody's tokens have been told since `left_group`
        self._num_added = self._num_admitted = self._processed_tokens = 0
        self._queries = self._hits = 0

    @property
    def pipeline_depth(self) -> int:
        """With overlap scheduling, a step is planned while the one before it runs."""
        return 2 if self._overlaps else 1

    @property
    def num_running(self) -> int:
        """Admitted requests, the one in mid-prefill included."""
        return len(self._states) - len(self._waiting.entries)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue, retracted ones included."""
        return len(self._waiting.entries)

    @property
    def block_size(self) -> int:
        """Tokens per page of the radix cache."""
        return self._cache.page_size

    @property
    def kv_blocks(self) -> int:
        """Pages that requests can hold."""
        return self._cache.capacity // self._cache.page_size

    @property
    def kv_blocks_used(self) -> int:
        """Pages that requests own, or share and lock."""
        return self._cache.num_held // self._cache.page_size

    @property
    def kv_slots_unused(self) -> int:
        """Slots of last pages that their request has not reached; none at page size 1."""
        page_size = self._cache.page_size
        return sum(-state.computed % page_size for state in self._admitted())

    @property
    def prefix_stats(self) -> PrefixStats:
        """Prompt tokens of first admissions, and those of them found in the cache."""
        return PrefixStats(self._queries, self._hits)

    @property
    def running(self) -> tuple[int, ...]:
        """Admitted requests, by arrival."""
        return tuple(state.request.rid for state in self._admitted())

    @property
    def waiting(self) -> tuple[int, ...]:
        """Waiting requests as they stand in the queue."""
        return tuple(state.request.rid for state in self._waiting.entries)

    @property
    def num_free_tokens(self) -> int:
        """Token slots that hold nothing."""
        return self._cache.num_free

    @property
    def num_evictable_tokens(self) -> int:
        """Cached tokens that no request locks."""
        return self._cache.tree.num_evictable

    @property
    def new_token_ratio(self) -> float:
        """What of its remaining `max_new_tokens` a running request is charged at admission."""
        return self._ratio.current

    def load(self) -> tuple[int, int]:
        """(requests waiting, pages held)."""
        return self.num_waiting, self.kv_blocks_used

    def reject_reason(self, request: Request) -> str | None:
        """What the engine answers with an error, and what its memory would cut short."""
        return self._limits.reject_reason(request)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the queue; False while a full batch keeps everyone there."""
        most = self._limits.max_new_tokens(request)
        length = request.prompt_tokens + min(request.output_tokens, most)
        row = self._cache.row(request.rid, request.content, request.prompt_tokens, length)
        state = SGLangState(request, row, self._num_added, predicted_tokens, most)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps), self._processed_tokens)
        return not self._batch_is_full

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step: a prefill batch if one can be formed, else a decode batch."""
        left = self.decoding()
        self._skipping = False
        self._merge()
        plan = self._prefill_plan(ps_to_seconds(now_ps))
        if plan is None:
            plan = self._decode_plan(ps_to_seconds(now_ps))
        if plan.work:
            prefills = {p.state.request.rid: p.first + p.num_tokens for p in self._prefills}
            flying = {work.rid: prefills.get(work.rid, 0) for work in plan.work if work.samples}
            self._in_flight.append(flying)
        return plan._replace(left_group=left) if left else plan

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in; prompts enter the tree, ended requests do with their reply."""
        emitted, finished = [], []
        landed = self._in_flight.popleft() if plan.work else {}
        for rid, prefilled in landed.items():
            state = self._states.get(rid)
            if state is None or state.retracted:
                continue  # it has ended, or lost its KV, with this step planned already
            state.known += 1
            emitted.append(Emission(rid, 1))
            if state.known >= state.stop_at:
                self._end(state)
                finished.append(rid)
            elif prefilled:
                self._cache.checkpoint(state.row, prefilled)
        if not self._overlaps:
            self._merge()
        if not self._states and not self._in_flight:
            self._ratio.reset()
        self._in_unison = len(self._running) == len(emitted) - len(finished)
        return StepOutcome(tuple(emitted), tuple(finished))

    def steady_steps(self) -> int:
        """How many steps from now on only give everyone who runs a token."""
        running = self._running
        waits = bool(self._waiting.entries) and not self._batch_is_full
        if self._stepwise or not running or not self._in_unison or waits or self._chunked:
            return 0
        limit = min(state.stop_at - state.known for state in running)
        return self._memory.steps_that_fit(running, limit)

    def next_decodes(self) -> Decodes:
        """The batch of the first steady step."""
        contexts = [state.known for state in self._running]
        return Decodes(len(contexts), sum(contexts), max(contexts))

    def advance(self, steps: int) -> list[int]:
        """Take steady steps; the pages that each of them took."""
        taken = self._memory.take_steps(self._running, steps)
        for state in self._running:
            state.known += steps
            state.computed += steps
        self._ratio.decay(steps)
        self._skipping = True
        return taken

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        ended = [state for state in self._running if state.known >= state.stop_at]
        if not ended:
            return _NOTHING
        for state in ended:
            self._end(state)
        self._merge()
        if not self._states:
            self._ratio.reset()
        decoded = tuple((state.request.rid, state.generated) for state in ended)
        return StepOutcome((), tuple(rid for rid, _ in decoded), decoded)

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the requests that steady steps continue."""
        if not self._skipping:
            return ()
        return tuple((state.request.rid, state.generated) for state in self._running)

    def full_work(self, plan: StepPlan) -> tuple[Work, ...]:
        """The work of the plan just made, request by request."""
        return plan.work

    def _admitted(self) -> list[SGLangState]:
        return [state for state in self._states.values() if state.computed]

    # ------------------------------------------------------------------ a prefill batch

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

    # ------------------------------------------------------------------ a decode batch

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

    # ------------------------------------------------------------------ after a step

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
