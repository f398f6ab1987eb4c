"""vLLM V1 with asynchronous scheduling: a step is planned while the one before it runs.

Source: vLLM `v1/core/sched/async_scheduler.py`. What the step in flight will sample is not known
yet, so each of its sampling requests carries placeholders: one for the token and one for each draft
that may be accepted. A request that stops by itself has then been planned once more, and keeps its
place and its blocks for that step; what it brings is dropped.
"""

from collections.abc import Mapping

from servesim.records import Work
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_running import Step
from servesim.scheduler.vllm.v1_scheduler import VllmV1Scheduler


class AsyncVllmV1Scheduler(VllmV1Scheduler):
    """`schedule` may be called with one plan outstanding; `update` takes the older one."""

    @property
    def pipeline_depth(self) -> int:
        """The step in flight and the one planned behind it."""
        return 2

    def propose(self, drafts: Mapping[int, int]) -> None:
        """Nothing: the worker keeps the drafts, and the scheduler assumes their full number."""

    def _is_certain_to_end(self, state: RequestState) -> bool:
        """Whether a step in flight reaches the length cap even if it accepts no draft."""
        if not self._switches.async_length_guard:
            return False
        request = state.request
        at_least = state.computed + 2 - state.placeholders
        return at_least >= request.prompt_tokens + request.max_tokens

    def _must_wait(self, state: RequestState) -> bool:
        """Whether tokens from before its preemption have still to be delivered."""
        return state.stale > 0

    def _preempt(self, victim: RequestState, now_ps: int) -> None:
        super()._preempt(victim, now_ps)
        if self._switches.async_victim_waits:
            victim.stale = victim.in_flight
            victim.placeholders = 0

    def _advance(self, step: Step) -> tuple[tuple[int, int], ...]:
        recomputed = super()._advance(step)
        for rid, work in step.work.items():
            state = self._states[rid]
            state.in_flight += work.num_tokens
            if work.samples:
                state.placeholders += 1 + work.num_drafts
                state.drafts = self._settings.num_speculative_tokens
        return recomputed

    def _landed(self, state: RequestState, work: Work) -> bool:
        state.in_flight -= work.num_tokens
        if state.stale > 0:
            state.stale -= work.num_tokens
            return False
        return True

    def _correct(self, state: RequestState, work: Work, sampled: int, kept: int) -> None:
        rejected = work.num_drafts + 1 - sampled
        if state.computed > 0:  # a victim has nothing to take back
            state.computed -= rejected + sampled - kept
        if state.placeholders > 0:
            state.placeholders -= rejected + sampled
        # blocks of decoded tokens: the plan could not register tokens that it did not know
        by_flight = self._switches.update_registers_drafted
        ahead = state.in_flight if by_flight else state.placeholders
        self._register(state, state.computed - ahead)
