"""A replica with two steps in flight: the engine plans a step while the one before it runs.

At the end of step N its tokens stream and the scheduler takes them in; step N+1, planned while N
ran, starts at once, and N+2 is planned at that instant. So the plan of a step knows the tokens up
to two steps before it, and a request that arrives joins a step later than in an engine that plans
when the GPU is free. What such an engine gains by it, host work behind GPU work, is in the cost
model's step times and not here.

A plan without work is not kept in flight: the engine then asks again at the end of the step that
runs, which is where it looks at its queue again. (vLLM 0.33 v1/engine/core.py,
step_with_batch_queue, two batches.)

A run begins with the step in flight: while its k steps N … N+k−1 are executed the steps
N+1 … N+k are planned, so that N+k is in flight when the run is over. An arrival within step j
finds j+1 planned, and cuts the run where j ends.
"""

from servesim.engine.replica import Replica
from servesim.engine.under_way import Run, Step
from servesim.records import StepPlan


class PipelinedReplica(Replica):
    """Serves what is submitted to it, for schedulers with `pipeline_depth` 2."""

    _next: StepPlan | None = None  # planned, starts when the step under way ends
    _preempted: tuple[int, ...] = ()  # by plans without work, at the instant of the last plan

    def _begin(self, now: int) -> int | None:
        """Start what was planned before, or is planned now; its duration, or None without any.

        Raises:
            RuntimeError: nothing is in flight, and the scheduler twice plans nothing for the
                requests it has.
        """
        steps = self._scheduler.steady_steps()
        if steps:
            return self._run(now, steps)
        # a plan may be empty once, when the only running request was its own victim
        self._next = self._next or self._plan(now) or self._plan(now)
        if self._next is not None:
            return self._step(now)
        if self._has_requests():
            raise RuntimeError(f"scheduler is stuck at {now} ps with requests waiting")
        return None

    def _run(self, now: int, steps: int) -> int:
        duration_ps = super()._run(now, steps)
        run = self._under_way
        if type(run) is Run and self._recorder.keeps_steps:
            # its first step has been planned: those tokens count as computed already
            run.slots_unused += run.decodes.seqs
        return duration_ps

    def _finish_run(self, run: Run, steps: int, now: int) -> None:
        scheduler, recorder = self._scheduler, self._recorder
        taken = scheduler.advance(steps)
        # a step's blocks are taken when the one before it starts, after its row has been noted
        recorder.ran(run.durations, run.decodes.seqs, run.blocks_used, [0, *taken[:-1]], now)
        recorder.keep_run(run, [0, *taken[:-1]])
        self._next = StepPlan((), decodes=run.decodes.later(steps))
        outcome = scheduler.end_run()
        if outcome.finished:
            recorder.ended(outcome)
            self._arrivals.ended(outcome.finished, now)

    def _step(self, now: int) -> int:
        """Start the step planned before, and plan the one behind it."""
        plan = self._next
        if plan is None:
            raise RuntimeError(f"no step is planned at {now} ps")
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

        Who leaves the group and preemptions are told now: a victim may end by a token in flight
        before the step starts. Preemptions of a plan without work count with the step that
        starts at this instant.
        """
        if not self._has_requests():
            return None
        plan = self._scheduler.schedule(now)
        told = StepPlan((), preempted=plan.preempted, left_group=plan.left_group)
        self._recorder.planned(told, now)
        if plan.num_seqs:
            return plan
        self._preempted += plan.preempted
        return None

    def _started(self, plan: StepPlan, now: int) -> Step:
        time = self._timer.step_time(plan.padded())
        self._recorder.planned(plan._replace(preempted=(), left_group=()), now)
        waiting, used = self._scheduler.load()
        return Step(now, plan, time, waiting, used, self._slots_unused())
