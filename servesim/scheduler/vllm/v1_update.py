"""vLLM V1: what a step brought, and the drafts for the next one.

Source: vLLM `v1/core/sched/scheduler.py` (`update_from_output`, `update_draft_token_ids`).
"""

from collections.abc import Mapping

from servesim.records import Emission, StepOutcome, StepPlan, Work
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_engine import VllmV1Engine


class VllmV1Update(VllmV1Engine):
    """The second call of a step."""

    def propose(self, drafts: Mapping[int, int]) -> None:
        """Store drafts for the next step, by request; 0 takes the stored ones away."""
        stores_in_prefill = self._switches.stores_drafts_in_prefill
        for rid, count in drafts.items():
            state = self._states.get(rid)
            if state is not None:
                state.drafts = count if stores_in_prefill or not state.mid_prefill else 0

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended and free its blocks at once.

        Args:
            plan: the oldest one that has not been taken in.
            accepted: accepted drafts by request, 0 where it is silent.
        """
        emitted: list[Emission] = []
        finished: list[int] = []
        for work in plan.work:
            state = self._states.get(work.rid)
            if state is None:
                continue  # given up, or ended by an earlier step, while this one was in flight
            counts = self._landed(state, work)
            if not work.samples:
                if work.num_drafts:  # a victim left in the batch: one more than all are rejected
                    state.computed -= work.num_drafts + 1
                continue
            sampled = 1 + (accepted.get(work.rid, 0) if work.num_drafts else 0)
            end = min(state.stop_at, self._max_model_len)
            kept = min(sampled, end - state.known)
            state.known += kept
            emitted.append(Emission(work.rid, kept))
            if counts:
                self._correct(state, work, sampled, kept)
            if state.known >= end:
                finished.append(work.rid)
                self._end(state)
        if finished:
            self._drop_ended()
        return StepOutcome(tuple(emitted), tuple(finished))

    def _landed(self, state: RequestState, work: Work) -> bool:
        """A request's part of a step is over; whether it counts for the request's progress."""
        return True

    def _correct(self, state: RequestState, work: Work, sampled: int, kept: int) -> None:
        """Take back what was computed for rejected drafts and for tokens behind a stop."""
        state.drafts = 0
        if work.num_drafts:
            state.computed -= work.num_drafts + 1 - kept
        if self._settings.num_speculative_tokens and self._switches.update_registers_drafted:
            self._register(state, state.computed)

    def _register(self, state: RequestState, num_tokens: int) -> None:
        """Cache full blocks of a running request; a preempted one has none."""
        if state.running:
            self._kv.register(state.table, min(num_tokens, state.known))
