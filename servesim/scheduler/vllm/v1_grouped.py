"""The same scheduler at the price of its decisions, not of its batch.

Requests that just go on decoding are a `DecodeGroup`; the others are scheduled one by one. A
step in which the order inside the group matters (memory runs out, a prefill stands between
decodes) dissolves the group and is left to `VllmV1Scheduler`. With drafts there is no group.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from servesim.kv.counted import CountedPool
from servesim.kv.manager import Pool
from servesim.records import (
    Decodes,
    Emission,
    Request,
    StepOutcome,
    StepPlan,
    Work,
    new_tuple,
)
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.decoding import DecodeGroup
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_running import Step
from servesim.scheduler.vllm.v1_scheduler import VllmV1Scheduler
from servesim.units import ps_to_seconds

if TYPE_CHECKING:
    from servesim.scheduler.vllm.v1 import VllmV1

NOTHING = StepOutcome((), ())


class GroupedVllmV1Scheduler(VllmV1Scheduler):
    """Decides as `VllmV1Scheduler` does, request by request and block by block."""

    def __init__(
        self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int
    ) -> None:
        super().__init__(settings, setup, max_tokens, max_seqs)
        self._group = DecodeGroup(self._kv, self._counted)
        self._in_step = False
        self._refused: RequestState | None = None  # head of the queue that nothing can let in
        self._asks_again: RequestState | None = None  # head that each steady step looks up
        self._passes_over = (
            not settings.enable_chunked_prefill
            and self._switches.long_head_without_chunking == "skip"
        )
        self._block_size = setup.cache.block_size
        self._has_threshold = settings.long_prefill_token_threshold > 0
        self._chunked = settings.enable_chunked_prefill
        # a request without more tokens than this is accepted
        slots = self._counted.num_usable * self._block_size
        self._surely_fits = min(setup.max_model_len, slots + 1)
        self._counts_look_ups = self._switches.prefix_stats_at == "lookup"

    def _make_pool(self, num_gpu_blocks: int, unkeyed_to_head: bool) -> Pool:
        self._counted = CountedPool(num_gpu_blocks, unkeyed_to_head)
        return self._counted

    @property
    def num_running(self) -> int:
        """Admitted requests, those in mid-prefill included."""
        return len(self._running) + self._group.size

    @property
    def kv_slots_unused(self) -> int:
        """Slots of held blocks that hold no token's KV."""
        return super().kv_slots_unused + self._group.slots_unused()

    @property
    def running(self) -> tuple[int, ...]:
        """Running requests in the engine's order."""
        states = sorted([*self._running, *self._group.states()], key=lambda s: s.admission_order)
        return tuple(state.request.rid for state in states)

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the group."""
        known, in_flight = self._group.known_tokens, self._in_step
        return tuple(
            (s.request.rid, known(s) - s.request.prompt_tokens - in_flight)
            for s in self._group.states()
        )

    def full_work(self, plan: StepPlan) -> tuple[Work, ...]:
        """The work of the plan just made, request by request; ask before `update`."""
        return (self._group.work() if plan.decodes.seqs else ()) + plan.work

    def steady_steps(self) -> int:
        """How many steps from now on only continue the group, if nobody arrives.

        A head of the queue that a step of the group alone has refused stays refused until a
        request ends: free blocks only get fewer, and what it needs beyond its hits never does.
        """
        group = self._group
        if self._running or not group.size:
            return 0
        self._asks_again = None
        if self._waiting.entries and group.size < self._max_seqs:
            head = self._waiting.head()
            # a block that fills in a step may be one that the head waits for, in the same step
            if group.num_sharers or head is not self._refused or self._passes_over:
                return 0
            if self._counts_look_ups and group.size < self._max_tokens:
                if _may_hit(head):
                    return 0  # how much it finds may change from step to step
                self._asks_again = head
        return group.steps_that_fit()

    def next_decodes(self) -> Decodes:
        """The batch of the next step, where it only continues the group."""
        return self._group.next_batch()

    def advance(self, steps: int) -> Sequence[int]:
        """Take steady steps; the blocks that each of them took."""
        if self._asks_again is not None:
            self._count_query(self._asks_again, 0, steps)
        return self._group.advance(steps)

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        if self._group.first_end > self._group.steps:
            return NOTHING
        decoded = self._stop_ended()
        return new_tuple(StepOutcome, ((), tuple([rid for rid, _ in decoded]), decoded, 0))

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        waiting = self._waiting
        before = waiting.head() if waiting.entries else None
        super().add(request, predicted_tokens)
        if before is not None and waiting.head() is before and not waiting.changes_with_time:
            return False  # behind a head that has been refused, or that the next plan looks at
        self._refused = None
        return self._group.size + len(self._running) < self._max_seqs

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step: the group, requests in mid-prefill, then waiting ones."""
        self._in_step = True
        step = self._continue_running()
        if step is None:
            return self._schedule_apart(now_ps)
        if self._waiting.entries:
            steady = not step.work
            self._schedule_waiting(step, now_ps)
            if steady and not step.work and not self._waiting.changes_with_time:
                self._refused = self._waiting.head()
        recomputed = self._advance(step)
        work, admitted = tuple(step.work.values()), tuple(step.admitted)
        return StepPlan(work, admitted, (), recomputed, self._group.last_batch())

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended, group what just goes on decoding."""
        self._in_step = False
        group, states = self._group, self._states
        decoded = self._stop_ended() if group.first_end <= group.steps else ()
        emitted: list[Emission] = []
        finished = [rid for rid, _ in decoded]
        joined = False
        for work in plan.work:
            if not work.samples:
                continue
            rid = work.rid
            state = states.get(rid)
            if state is None:
                continue  # given up while the step was in flight
            state.known += 1
            emitted.append(Emission(rid, 1))
            end = min(state.stop_at, self._max_model_len)
            if state.known >= end:
                finished.append(rid)
                self._end(state)
            else:
                group.join(state, end)
                joined = True
        if joined or len(finished) > len(decoded):
            self._running = [s for s in self._running if not s.grouped and s.request.rid in states]
        return StepOutcome(tuple(emitted), tuple(finished), decoded)

    def _continue_running(self) -> Step | None:
        """Plan the group and the requests in mid-prefill; None where order in the group counts."""
        group, running = self._group, self._running
        step = Step(self._max_tokens - group.size, self._threshold())
        if not group.size:
            due = 0
        elif (due := group.blocks_due()) > self._kv.pool.num_free:
            return None
        chunks = self._chunks(step, due, running, group.newest) if running else ()
        if chunks is None:
            return None
        if group.size:
            group.advance(1)
        for state, n in chunks:
            self._continue_prefill(step, state, n)
        return step

    def _chunks(
        self, step: Step, due: int, states: list[RequestState], newest: int
    ) -> list[tuple[RequestState, int]] | None:
        """Tokens for each of `states`, in mid-prefill, beside decodes that take `due` blocks.

        None where the order matters: the last decode was admitted as number `newest`.
        """
        if states[0].admission_order < newest:
            return None  # the prefill may take tokens or blocks from decodes behind it
        budget, room = step.budget, self._kv.pool.num_free - due
        chunks: list[tuple[RequestState, int]] = []
        for state in states:
            if not state.mid_prefill:
                return None  # a decode that had to pause
            if budget <= 0:
                break
            n = min(self._next_chunk(state, step), budget)
            room -= max(0, self._kv.blocks_for(state.computed + n) - state.table.num_blocks)
            budget -= n
            chunks.append((state, n))
        return chunks if room >= 0 else None

    def _next_chunk(self, state: RequestState, step: Step) -> int:
        """Tokens for a request in mid-prefill if it is the only one."""
        n = state.known - state.computed
        if 0 < step.threshold < n:
            n = step.threshold
        return min(n, step.budget, self._max_model_len - 1 - state.computed)

    def _continue_prefill(self, step: Step, state: RequestState, n: int) -> None:
        rid, computed = state.request.rid, state.computed
        self._kv.extend(state.table, computed + n, 0, state.known)
        step.work[rid] = Work(rid, n, computed, 0, computed + n >= state.known)
        step.budget -= n
        step.carries_prefill = True

    def _schedule_waiting(self, step: Step, now_ps: int) -> None:
        """As in `VllmV1Scheduler`, short for requests that can hit nothing."""
        if self._passes_over:
            super()._schedule_waiting(step, now_ps)
            return
        waiting, settings, kv = self._waiting, self._settings, self._kv
        num_running = self.num_running
        if waiting.changes_with_time and num_running < self._max_seqs:
            waiting.refresh(ps_to_seconds(now_ps))
        while step.budget > 0 and num_running < self._max_seqs and waiting.entries:
            state = waiting.head()
            table, known = state.table, state.known
            if _may_hit(state):
                need, _ = self._need(state, step, ran_some=True)
                n, cached = need.new_tokens, self._cached(need.hits) + need.uncovered_tokens
                if n > step.budget or not kv.admit(table, need):
                    return
            else:
                n, cached = known, 0
                if self._counts_look_ups:
                    self._count_query(state, 0)
                if 0 < step.threshold < n:
                    n = step.threshold
                if n > step.budget:
                    if not settings.enable_chunked_prefill:
                        return
                    n = step.budget
                whole = known if self._full_sequence else n
                if not kv.admit_new(table, n, whole, self._spare_blocks if num_running else 0):
                    return
            waiting.pop()
            num_running += 1
            self._admit(step, state, Work(state.request.rid, n, cached, 0, cached + n >= known))

    def _schedule_apart(self, now_ps: int) -> StepPlan:
        """Leave the step to the scheduler that looks at every request."""
        self._refused = None
        members = self._group.dissolve()
        left = tuple((s.request.rid, s.known - s.request.prompt_tokens) for s in members)
        self._running = sorted([*self._running, *members], key=lambda s: s.admission_order)
        return super().schedule(now_ps)._replace(left_group=left)

    def _stop_ended(self) -> tuple[tuple[int, int], ...]:
        """Free those of the group that have ended; (rid, tokens of the whole reply)."""
        ended = self._group.pop_ended()
        for state in ended:
            self._end(state)
        return tuple([(s.request.rid, s.known - s.request.prompt_tokens) for s in ended])

    def _end(self, state: RequestState) -> None:
        """A request has ended: its blocks may let the head of the queue in."""
        if state.grouped:
            self._group.drop(state)
        super()._end(state)
        self._refused = None


def _may_hit(state: RequestState) -> bool:
    """Whether a waiting request may have computed tokens before it is admitted."""
    return bool(state.table.num_shareable or state.table.own_run or state.computed)
