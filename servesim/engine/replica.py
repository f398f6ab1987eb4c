"""One engine on its GPUs: asks the scheduler, charges the cost, writes records.

A step is plan, time, apply. Where the scheduler says that the next steps decide nothing, they
are one run: the replica sleeps until its end, or until an arrival cuts it at the first step
boundary where the engine would look at its queue again.

The replica is driven by event callbacks and not by a SimPy process: cutting a run by interrupting
a process costs ten times as much as letting a timeout lapse that is no longer waited for.
"""

from simpy import Environment, Event
from simpy.events import Timeout

from servesim.cost.base import StepTimer
from servesim.engine.observer import Observer, Progress
from servesim.engine.recorder import Recorder
from servesim.engine.under_way import Run, Step
from servesim.policies.admission.base import Admission, EngineLoad
from servesim.records import Request
from servesim.scheduler.base import Scheduler

_NO_DRAFTS: dict[int, int] = {}
_DECISIONS_PER_REPORT = 256


class Replica:
    """Serves what is submitted to it; one scheduler, one timer.

    Attributes:
        num_decisions: how often it has asked the scheduler what to do.
    """

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        timer: StepTimer,
        recorder: Recorder,
        observer: Observer | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._env = env
        self._scheduler = scheduler
        self._timer = timer
        self._recorder = recorder
        self._observer = observer
        self._admission = admission
        self._under_way: Run | Step | None = None
        self._end: Event | None = None  # of it; other timeouts have lapsed
        self.num_decisions = self._empty_plans = 0

    def submit(self, request: Request, predicted_tokens: float) -> None:
        """A request reaches the engine now."""
        reason = self._scheduler.reject_reason(request)
        if reason is None and self._admission is not None:
            self._look(int(self._env.now))
            reason = self._admission.refuse(request, self._load_now())
        if reason is not None:
            self._recorder.rejected(request, reason)
            return
        now = int(self._env.now)
        self._recorder.queued(request, now)
        plan_may_change = self._scheduler.add(request, predicted_tokens)
        if self._end is None:
            # asleep: wake up after all that arrives at this instant
            self._wait(0)
        elif type(self._under_way) is Run:
            self._under_way.arrivals_ps.append(now)
            if plan_may_change:
                self._cut(self._under_way, now)

    def stop(self, now_ps: int) -> None:
        """The simulation ends at `now_ps`: count what has been delivered before it."""
        run = self._under_way
        if type(run) is Run:
            steps = run.durations.steps_until(now_ps - run.start_ps)
            if run.durations.total(steps) >= now_ps - run.start_ps:
                steps -= 1  # its end is not before the simulation's
            if steps:
                self._finish_run(run, steps)
        self._recorder.left_group(self._scheduler.decoding())

    def _look(self, now: int) -> None:
        """Plan the step under way by itself, so that the engine's load is that of this moment.

        In the middle of a run it is that of the run's beginning.
        """
        run = self._under_way
        if type(run) is not Run:
            return
        done = run.durations.steps_until(now - run.start_ps) - 1
        if done:
            self._finish_run(run, done)
        start = run.start_ps + run.durations.total(done)
        self._wait(start + self._step(start) - now)

    def _load_now(self) -> EngineLoad:
        scheduler = self._scheduler
        waiting, used = scheduler.load()
        return EngineLoad(waiting, scheduler.num_running, scheduler.kv_blocks, used)

    def _wait(self, delay_ps: int) -> None:
        self._end = Timeout(self._env, delay_ps)
        self._end.callbacks.append(self._on_end)

    def _on_end(self, event: Event) -> None:
        """What was under way is over: apply it and begin what comes next.

        As long as that ends before anything else in the whole simulation happens, nobody can
        tell the difference if it is applied at once, without an event of its own.
        """
        if event is not self._end:
            return
        env = self._env
        now = int(env.now)
        while True:
            self._apply(now)
            duration_ps = self._begin(now)
            if duration_ps is None:
                self._end = None
                return
            end = now + duration_ps
            if end >= env.peek():
                self._wait(end - int(env.now))
                return
            now = end

    def _apply(self, now: int) -> None:
        """The run or step under way ends."""
        under_way = self._under_way
        if type(under_way) is Run:
            self._finish_run(under_way, under_way.steps)
        elif type(under_way) is Step:
            outcome = self._scheduler.update(under_way.plan, _NO_DRAFTS)
            self._recorder.stepped(under_way, outcome, now)
        self.num_decisions += 1
        if self._observer is not None and self.num_decisions % _DECISIONS_PER_REPORT == 0:
            self._observer(Progress(now, self._recorder.num_done, self._recorder.num_steps))

    def _begin(self, now: int) -> int | None:
        """Decide what comes next; its duration, or None if there is nothing to do."""
        scheduler = self._scheduler
        steps = scheduler.steady_steps()
        if steps:
            decodes = scheduler.next_decodes()
            durations = self._timer.decode_run(decodes, steps)
            steps = durations.steps
            waiting, used = scheduler.load()
            self._under_way = Run(
                now, decodes, durations, steps, used, waiting, self._slots_unused()
            )
            return durations.total(steps)
        if scheduler.num_running or scheduler.num_waiting:
            return self._step(now)
        self._under_way = None
        return None

    def _step(self, now: int) -> int:
        scheduler = self._scheduler
        plan = scheduler.schedule(now)
        # A plan may be empty once, when the only running request was its own victim.
        self._empty_plans = 0 if plan.num_seqs else self._empty_plans + 1
        if self._empty_plans > 1:
            raise RuntimeError(f"scheduler is stuck at {now} ps with requests waiting")
        time = self._timer.step_time(plan.padded())
        self._recorder.planned(plan, now)
        waiting, used = scheduler.load()
        self._under_way = Step(now, plan, time, waiting, used, self._slots_unused())
        return time.duration_ps

    def _slots_unused(self) -> int:
        return self._scheduler.kv_slots_unused if self._recorder.keeps_steps else 0

    def _finish_run(self, run: Run, steps: int) -> None:
        self._recorder.ran(run, steps, self._scheduler.advance(steps))
        self._recorder.ended(self._scheduler.end_run(), run.start_ps + run.durations.total(steps))

    def _cut(self, run: Run, now: int) -> None:
        """End the run at the first step boundary from now on."""
        elapsed = now - run.start_ps
        steps = run.durations.steps_until(elapsed)
        if steps < run.steps:
            run.steps = steps
            self._wait(run.durations.total(steps) - elapsed)
