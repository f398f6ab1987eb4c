"""The same scheduler at the price of its decisions, not of its batch.

Requests that just go on decoding are a `DecodeGroup`; the others are scheduled one by one. A
step in which the order inside the group matters (memory runs out, a prefill stands between
decodes, drafts) dissolves the group and is left to `VllmV1Scheduler`, as is every step of it.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from servesim.records import Decodes, Request, StepOutcome, StepPlan, Work
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.decoding import DecodeGroup
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm_v1_scheduler import Step, VllmV1Scheduler

if TYPE_CHECKING:
    from servesim.scheduler.vllm_v1 import VllmV1


class GroupedVllmV1Scheduler(VllmV1Scheduler):
    """Decides as `VllmV1Scheduler` does, request by request and block by block."""

    def __init__(
        self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int
    ) -> None:
        super().__init__(settings, setup, max_tokens, max_seqs)
        self._group = DecodeGroup(self._kv)
        self._in_step = False

    @property
    def num_running(self) -> int:
        """Admitted requests, those in mid-prefill included."""
        return len(self._running) + self._group.size

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
        """The work of the plan just made, the group's members one by one."""
        return (self._group.work() if plan.decodes.seqs else ()) + plan.work

    def steady_steps(self) -> int:
        """How many steps from now on only continue the group, if nobody arrives."""
        group = self._group
        if self._running or not group.size:
            return 0
        limit = group.steps_left()
        if len(self._waiting):
            if not self._is_blocked():
                return 0
            if self._may_be_unblocked():
                limit = 1
        return group.steps_that_fit(limit)

    def next_decodes(self) -> Decodes:
        """The batch of the next step, where it only continues the group."""
        return self._group.next_batch()

    def advance(self, steps: int) -> list[tuple[int, int]]:
        """Take steady steps; (step, blocks) for each that took blocks."""
        return self._group.advance(steps)

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        decoded = self._stop_ended()
        return StepOutcome((), tuple(rid for rid, _ in decoded), decoded)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        waiting = self._waiting
        before = waiting.head() if len(waiting) else None
        super().add(request, predicted_tokens)
        if before is not None and waiting.head() is before and not waiting.changes_with_time:
            return False
        return not self._is_blocked() or self._may_be_unblocked()

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step: the group, requests in mid-prefill, then waiting ones."""
        self._in_step = True
        step = self._continue_running()
        if step is None:
            return self._schedule_apart(now_ps)
        if len(self._waiting):
            self._schedule_waiting(step, now_ps)
        recomputed = self._advance(step)
        work, admitted = tuple(step.work.values()), tuple(step.admitted)
        return StepPlan(work, admitted, (), recomputed, self._group.last_batch())

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended, group what just goes on decoding."""
        self._in_step = False
        decoded = self._stop_ended() if plan.decodes.seqs else ()
        outcome = super().update(plan, accepted)
        joined = False
        for work in plan.work:
            state = self._states.get(work.rid) if work.samples else None
            if state is not None:
                self._group.join(state, min(state.stop_at, self._max_model_len))
                joined = True
        if joined:
            self._running = [state for state in self._running if not state.grouped]
        if not decoded:
            return outcome
        ended = tuple(rid for rid, _ in decoded)
        return StepOutcome(outcome.emitted, ended + outcome.finished, decoded)

    def _continue_running(self) -> Step | None:
        """Plan the group and the requests in mid-prefill; None where order in the group counts."""
        group, running = self._group, self._running
        alone = group.size + len(running) + len(self._waiting) <= 1
        threshold = 0 if alone else self._settings.long_prefill_token_threshold
        step = Step(self._max_tokens - group.size, threshold)
        room = self._kv.pool.num_free - group.blocks_due()
        chunks: list[tuple[RequestState, int]] = []
        if running and running[0].admission_order < group.newest:
            return None  # the prefill may take tokens or blocks from decodes behind it
        budget = step.budget
        for state in running:
            if not state.mid_prefill:
                return None  # a decode that had to pause
            if budget <= 0:
                break
            n = state.known - state.computed
            if 0 < threshold < n:
                n = threshold
            n = min(n, budget, self._max_model_len - 1 - state.computed)
            room -= max(0, self._kv.blocks_for(state.computed + n) - len(state.table.blocks))
            budget -= n
            chunks.append((state, n))
        if room < 0:
            return None
        if group.size:
            group.advance(1)
        for state, n in chunks:
            self._continue_prefill(step, state, n)
        return step

    def _continue_prefill(self, step: Step, state: RequestState, n: int) -> None:
        rid, computed = state.request.rid, state.computed
        self._kv.extend(state.table, computed + n, 0, state.known)
        step.work[rid] = Work(rid, n, computed, 0, computed + n >= state.known)
        step.budget -= n
        step.carries_prefill = True

    def _schedule_apart(self, now_ps: int) -> StepPlan:
        """Leave the step to the scheduler that looks at every request."""
        members = self._group.dissolve()
        left = tuple((s.request.rid, s.known - s.request.prompt_tokens) for s in members)
        self._running = sorted([*self._running, *members], key=lambda s: s.admission_order)
        return dataclasses.replace(super().schedule(now_ps), left_group=left)

    def _stop_ended(self) -> tuple[tuple[int, int], ...]:
        """Free those of the group that have ended; (rid, tokens of the whole reply)."""
        ended = self._group.pop_ended()
        for state in ended:
            self._kv.release(state.table)
            del self._states[state.request.rid]
        return tuple((s.request.rid, s.known - s.request.prompt_tokens) for s in ended)

    def _is_blocked(self) -> bool:
        """Whether the queue's head cannot be admitted beside the group alone.

        It then cannot be while the group goes on either: free blocks only get fewer, and what a
        head needs beyond its hits never does.
        """
        size, waiting = self._group.size, self._waiting
        if self.num_running >= self._max_seqs or size >= self._max_tokens:
            return True
        if waiting.changes_with_time and len(waiting) > 1:
            return False  # another head may be admissible
        step = Step(self._max_tokens - size, self._settings.long_prefill_token_threshold)
        need, _ = self._need(waiting.head(), step, ran_some=True)
        return not need.new_tokens or not self._kv.fits(need)

    def _may_be_unblocked(self) -> bool:
        """Whether a block that the group fills may be one that the queue's head waits for."""
        return self._group.num_sharers > 0 and self.num_running < self._max_seqs
