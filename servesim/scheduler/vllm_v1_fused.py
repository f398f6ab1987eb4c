"""The same scheduler with its most common decision in one function.

At a load that the engine sustains, most steps that decide anything do this: nobody is in
mid-prefill, one new request waits, and it is let in whole, as its content is its own and it fits
into what tokens, seats and blocks are left. `schedule` and `update` do that here in one go,
without the lists that the general rules need. Whatever differs is left to the general rules.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from servesim.records import (
    Admission,
    Emission,
    Request,
    StepOutcome,
    StepPlan,
    Work,
    new_tuple,
)
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm_v1_grouped import GroupedVllmV1Scheduler
from servesim.units import ps_to_seconds

if TYPE_CHECKING:
    from servesim.scheduler.vllm_v1 import VllmV1

_REST_OF_A_PLAN = StepPlan(())[5:]  # the fields after `decodes`


class FusedVllmV1Scheduler(GroupedVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does."""

    def __init__(
        self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int
    ) -> None:
        super().__init__(settings, setup, max_tokens, max_seqs)
        self._block_size = setup.cache.block_size
        # a request alone in the engine may take more; the general rules see to that
        self._most_at_once = settings.long_prefill_token_threshold or max_tokens
        self._let_in: RequestState | None = None  # by the step in flight, in this class's way

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        if self._waiting.entries:
            return super().add(request, predicted_tokens)
        rid = request.rid
        state = RequestState(
            request, self._kv.table(rid, request.content), self._num_added, predicted_tokens
        )
        self._num_added += 1
        self._states[rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        self._refused = None
        return self._group.size + len(self._running) < self._max_seqs

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step."""
        entries, group = self._waiting.entries, self._group
        if len(entries) == 1 and not self._running:
            state = entries[0][-1]
            known, size, table = state.known, group.size, state.table
            blocks = -(-known // self._block_size)
            due = group.blocks_due()
            if (
                known <= self._most_at_once
                and known + size <= self._max_tokens
                and size < self._max_seqs
                and not state.requeued
                and not table.num_shareable
                and due + blocks + (self._spare_blocks if size else 0) <= self._counted.num_free
            ):
                return self._plan_with(state, blocks)
        return super().schedule(now_ps)

    def _plan_with(self, state: RequestState, blocks: int) -> StepPlan:
        """The group's next step, and all of the one request that waits."""
        known, table, rid = state.known, state.table, state.request.rid
        self._in_step = True
        self._group.step(blocks)
        decodes = self._group.last_batch()
        table.num_blocks = blocks
        if self._caching:
            table.num_registered = known // self._block_size
            self._queries += known
        self._waiting.entries.clear()
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        state.computed = known
        state.running = True
        self._running.append(state)
        self._let_in = state
        work = new_tuple(Work, (rid, known, 0, 0, True))
        admission = new_tuple(Admission, (rid, 0, False))
        return new_tuple(StepPlan, ((work,), (admission,), (), (), decodes, *_REST_OF_A_PLAN))

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended, group what just goes on decoding."""
        state, self._let_in = self._let_in, None
        if state is None or state.request.rid not in self._states:
            return super().update(plan, accepted)  # of another step, or given up meanwhile
        group = self._group
        self._in_step = False
        self._running.clear()
        decoded = self._stop_ended() if group.first_end <= group.steps else ()
        finished = tuple([rid for rid, _ in decoded])
        rid = state.request.rid
        end = state.stop_at
        if end > self._max_model_len:
            end = self._max_model_len
        state.known += 1
        if state.known < end:
            group.join(state, end)
        else:
            finished += (rid,)
            self._end(state)
        emission = new_tuple(Emission, (rid, 1))
        return new_tuple(StepOutcome, ((emission,), finished, decoded, 0))
