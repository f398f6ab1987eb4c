"""The same scheduler where memory runs short: the group stays one, but for its victims."""

from servesim.records import StepPlan
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_grouped import GroupedVllmV1Scheduler
from servesim.scheduler.vllm.v1_running import Step


class ShortVllmV1Scheduler(GroupedVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does."""

    def _schedule_apart(self, now_ps: int) -> StepPlan:
        """In order of admission: who finds no block takes those of the last admitted.

        So victims are behind whoever has been scheduled, or their own, and the step is that of the
        others: decodes, then prefills. Nobody is let in beside a preemption.
        """
        if not self._in_order():
            return super()._schedule_apart(now_ps)
        self._refused = None
        group, pool, kv = self._group, self._counted, self._kv
        step = Step(self._max_tokens - group.size, self._threshold())
        members, prefills = group.states(), self._running
        running = [*members, *prefills]
        left: list[tuple[int, int]] = []
        for state in members:
            if (state.base + group.steps) % self._block_size:
                continue
            while state.running and not pool.num_free:
                left += self._give_up(running.pop(), step, now_ps)
            if not state.running:
                break  # its own victim, or somebody's, as all behind it are
            pool.take(1)
        group.count_step()
        for state in prefills:
            if not state.running or step.budget <= 0:
                break
            n = self._next_chunk(state, step)
            while state.running and not kv.extend(state.table, state.computed + n, 0, state.known):
                self._give_up(running.pop(), step, now_ps)
            if state.running:
                self._continue_prefill(step, state, n)
        self._running = [state for state in prefills if state.running]
        recomputed, work = self._advance(step), tuple(step.work.values())
        preempted = tuple(step.preempted)
        return StepPlan(work, (), preempted, recomputed, group.last_batch(), tuple(left))

    def _in_order(self) -> bool:
        """Whether victims are the last admitted, and all prefills are behind all decodes."""
        if self._priority_victims or self._victim_policy is not None or self._group.num_sharers:
            return False
        prefills = self._running
        if not prefills:
            return True
        behind = prefills[0].admission_order > self._group.newest
        return behind and all(state.mid_prefill for state in prefills)

    def _give_up(self, state: RequestState, step: Step, now_ps: int) -> tuple[tuple[int, int], ...]:
        """Preempt the last admitted; (rid, tokens streamed so far) if it leaves the group."""
        grouped = state.grouped
        if grouped:
            self._group.drop(state)
        self._preempt(state, now_ps)
        rid = state.request.rid
        step.preempted.append(rid)
        return ((rid, state.known - state.request.prompt_tokens),) if grouped else ()
