"""The same scheduler where the group runs short of memory: it stays one, but for its victims."""

from servesim.records import StepPlan
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm_v1_grouped import GroupedVllmV1Scheduler


class ShortVllmV1Scheduler(GroupedVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does."""

    def _schedule_apart(self, now_ps: int) -> StepPlan:
        """Decodes in order of admission: who finds no block takes those of the last admitted.

        So victims are behind whoever has been scheduled, or their own, and the step is that of the
        group without them. Nobody is let in beside a preemption.
        """
        group = self._group
        by_rank = self._priority_victims or self._victim_policy is not None
        if by_rank or self._running or group.num_sharers:
            return super()._schedule_apart(now_ps)
        self._refused = None
        left: list[tuple[int, int]] = []
        members = group.states()
        short = [state for state in members if (state.base + group.steps) % self._block_size == 0]
        for state in short:
            while state.grouped and not self._counted.num_free:
                left.append(self._give_up(members.pop(), now_ps))
            if not state.grouped:
                break  # its own victim, or somebody's, as all behind it are
            self._counted.take(1)
        group.count_step()
        preempted = tuple([rid for rid, _ in left])
        return StepPlan((), (), preempted, (), group.last_batch(), tuple(left))

    def _give_up(self, state: RequestState, now_ps: int) -> tuple[int, int]:
        """Preempt a member of the group: (rid, tokens streamed so far)."""
        self._group.drop(state)
        self._preempt(state, now_ps)
        return state.request.rid, state.known - state.request.prompt_tokens
