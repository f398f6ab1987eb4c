"""vLLM V1: the loop over running requests, and whom it preempts.

Source: vLLM `v1/core/sched/scheduler.py` (`schedule`); what differs between releases is in
`switches`.
"""

from servesim.records import Admission, Work
from servesim.scheduler.state import RequestState
from servesim.scheduler.victims import victim_position
from servesim.scheduler.vllm.v1_update import VllmV1Update
from servesim.units import ps_to_seconds


class Step:
    """What one `schedule` call has decided so far."""

    __slots__ = ("admitted", "budget", "carries_prefill", "preempted", "threshold", "work")

    def __init__(self, budget: int, threshold: int) -> None:
        self.budget = budget
        self.threshold = threshold
        self.work: dict[int, Work] = {}  # in the engine's order
        self.admitted: list[Admission] = []
        self.preempted: list[int] = []
        self.carries_prefill = False


class VllmV1Running(VllmV1Update):
    """The first half of the first call of a step."""

    def _schedule_running(self, step: Step, now_ps: int) -> None:
        running, lookahead = self._running, self._settings.num_lookahead_tokens
        threshold, longest = step.threshold, self._max_model_len - 1
        extend = self._kv.extend
        i = 0
        while i < len(running) and step.budget > 0:
            state = running[i]
            computed, known = state.computed, state.known
            n = known + state.drafts + state.placeholders - computed
            if 0 < threshold < n:
                n = threshold
            n = min(n, step.budget, longest - computed)
            if n <= 0 or (state.placeholders and self._is_certain_to_end(state)):
                i += 1
                continue
            if not extend(state.table, computed + n, lookahead, known):
                fits, i = self._make_room(step, i, n, now_ps)
                if not fits:
                    if self._goes_on():
                        continue  # with whoever moved up
                    return
            self._continue(step, state, n)
            i += 1

    def _is_certain_to_end(self, state: RequestState) -> bool:
        """Whether a step in flight reaches the length cap; there is none in flight here."""
        return False

    def _continue(self, step: Step, state: RequestState, n: int) -> None:
        """A running request computes `n` tokens in this step."""
        rid, computed = state.request.rid, state.computed
        sampled_by_then = state.known + state.placeholders
        drafts = min(state.drafts, max(0, computed + n - sampled_by_then))
        samples = computed + n >= sampled_by_then
        step.carries_prefill |= state.mid_prefill
        step.work[rid] = Work(rid, n, computed, drafts, samples)
        step.budget -= n
        if self._switches.preemption_clears_drafts:
            state.drafts = 0
        elif drafts:
            state.drafts = drafts  # what was cut off is gone, the rest stays until it is sampled

    def _goes_on(self) -> bool:
        """Whether a request that was its own victim leaves the loop to the others."""
        by_rank = self._priority_victims or self._victim_policy is not None
        return by_rank and self._switches.goes_on_after_own_preemption

    def _make_room(self, step: Step, i: int, n: int, now_ps: int) -> tuple[bool, int]:
        """Preempt until running request `i` gets `n` tokens, or is its own victim.

        Returns:
            (whether it got them, where the loop stands in the list that is left).
        """
        running = self._running
        state = running[i]
        lookahead = self._settings.num_lookahead_tokens
        while True:
            position = self._victim()
            victim = running.pop(position)
            i -= self._moves_back(step, victim, position < i)
            self._undo(step, victim)
            self._preempt(victim, now_ps)
            step.preempted.append(victim.request.rid)
            if victim is state:
                return False, i
            if self._kv.extend(state.table, state.computed + n, lookahead, state.known):
                return True, i

    def _moves_back(self, step: Step, victim: RequestState, was_before: bool) -> bool:
        """Whether the loop index follows the list when a victim is taken out of it."""
        rule = self._switches.index_after_victim
        if rule == "back_if_scheduled":
            return victim.request.rid in step.work
        return was_before and rule == "back_if_before"

    def _undo(self, step: Step, victim: RequestState) -> None:
        """Take a victim that was scheduled in this step out of the batch."""
        work = step.work.get(victim.request.rid)
        if work is None:
            return
        if self._switches.scheduled_victim_keeps_tokens:
            # it runs, but neither it nor the model runner knows what it had computed
            step.work[work.rid] = work._replace(samples=False)
        else:
            step.budget += step.work.pop(work.rid).num_tokens

    def _victim(self) -> int:
        """Position of the next victim: the last admitted, or the least urgent under priority."""
        if self._victim_policy is not None:
            return victim_position(self._victim_policy, self._running)
        if not self._priority_victims:
            return len(self._running) - 1
        requests = [state.request for state in self._running]
        return max(
            range(len(requests)), key=lambda i: (requests[i].priority, requests[i].arrival_ps)
        )

    def _preempt(self, victim: RequestState, now_ps: int) -> None:
        drafts = 0 if self._switches.preemption_clears_drafts else victim.drafts
        self._num_requeued += 1
        self._kv.give_up(victim.table, victim.known)
        victim.lose_blocks(self._num_requeued)
        victim.drafts = drafts
        self._waiting.push(victim, ps_to_seconds(now_ps))
