"""A replica with two steps in flight: the engine plans a step while the one before it runs.

At the end of step N its tokens stream and the scheduler takes them in; step N+1, planned while N
ran, starts at once, and N+2 is planned at that instant. So the plan of a step knows the tokens up
to two steps before it, and a request that arrives joins a step later than in an engine that plans
when the GPU is free. What such an engine gains by it, host work behind GPU work, is in the cost
model's step times and not here.

A plan without work is not kept in flight: the engine then asks again at the end of the step that
runs, which is where it looks at its queue again. (vLLM 0.33 v1/engine/core.py,
step_with_batch_queue, two batches.)
"""

from servesim.engine.replica import Replica
from servesim.engine.under_way import Step
from servesim.records import StepPlan


class PipelinedReplica(Replica):
    """Serves what is submitted to it, for schedulers with `pipeline_depth` 2.

    Every step is looked at: such a scheduler has no steady steps.
    """

    _next: StepPlan | None = None  # planned, starts when the step under way ends
    _preempted: tuple[int, ...] = ()  # by plans without work, at the instant of the last plan

    def _begin(self, now: int) -> int | None:
        """Start the step planned before, or one planned now; its duration, or None without any.

        Raises:
            RuntimeError: nothing is in flight, and the scheduler twice plans nothing for the
                requests it has.
        """
        # a plan may be empty once, when the only running request was its own victim
        plan = self._next or self._plan(now) or self._plan(now)
        if plan is None:
            if self._has_requests():
                raise RuntimeError(f"scheduler is stuck at {now} ps with requests waiting")
            self._under_way = None
            return None
        step = self._under_way = self._started(plan, now)
        self._next = self._plan(now)
        if self._preempted:
            step.plan = plan._replace(preempted=self._preempted + plan.preempted)
            self._preempted = ()
        return step.time.duration_ps

    def _has_requests(self) -> bool:
        return bool(self._scheduler.num_running or self._scheduler.num_waiting)

    def _plan(self, now: int) -> StepPlan | None:
        """The next step, or None if there is nothing that it could do yet.

        Preemptions are told now: a victim may end by a token in flight before the step starts.
        Those of a plan without work count with the step that starts at this instant.
        """
        if not self._has_requests():
            return None
        plan = self._scheduler.schedule(now)
        self._recorder.planned(StepPlan((), preempted=plan.preempted), now)
        if plan.num_seqs:
            return plan
        self._preempted += plan.preempted
        return None

    def _started(self, plan: StepPlan, now: int) -> Step:
        time = self._timer.step_time(plan.padded())
        self._recorder.planned(plan._replace(preempted=()), now)
        waiting, used = self._scheduler.load()
        return Step(now, plan, time, waiting, used, self._slots_unused())
