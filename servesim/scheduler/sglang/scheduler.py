"""SGLang's scheduler as the replica drives it; `batches` forms its batches.

Source: SGLang 0.5.23, managers/scheduler.py (`event_loop_normal`, `event_loop_overlap`),
managers/scheduler_components/batch_result_processor.py.
"""

from collections.abc import Mapping

from servesim.kv.radix_cache import RadixCache
from servesim.records import (
    Decodes,
    Emission,
    PrefixStats,
    Request,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.sglang.batches import SGLangBatches
from servesim.scheduler.sglang.limits import SGLangLimits
from servesim.scheduler.sglang.queue import SGLangQueue
from servesim.scheduler.sglang.ratio import NewTokenRatio
from servesim.scheduler.sglang.retract import Retraction
from servesim.scheduler.sglang.state import SGLangState
from servesim.units import ps_to_seconds

_NOTHING = StepOutcome((), ())


class SGLangScheduler(SGLangBatches):
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
        super().__init__(limits, cache, queue, retraction, ratio)
        self._overlaps = not limits.disable_overlap_schedule
        self._stepwise = stepwise or self._overlaps
        self._in_unison = False  # everyone who runs had a token in the last step
        self._skipping = False  # nobody's tokens have been told since `left_group`
        self._num_added = 0

    @property
    def pipeline_depth(self) -> int:
        """With overlap scheduling, a step is planned while the one before it runs."""
        return 2 if self._overlaps else 1

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
        plan = self._plan(ps_to_seconds(now_ps))
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
