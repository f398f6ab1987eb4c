"""One engine on its GPUs: asks the scheduler, charges the cost, writes records.

A step is plan, time, apply. Where the scheduler says that the next steps decide nothing, they
are one run: the replica sleeps until its end, or until an arrival cuts it at the first step
boundary where the engine would look at its queue again.

SimPy keeps the time that replicas and whoever talks to them share. As long as what a replica does
next comes before anything else in the whole simulation, nobody can tell whether it had an event of
its own, and it goes without: events cost more than most decisions. For the same reason it is
driven by event callbacks and not by a SimPy process, and lets an event lapse that it no longer
waits for: interrupting a process costs ten times as much.

Where the scheduler has a fast lane, and neither steps are kept nor anybody is asked at the door,
the replica lets it drive, and decides with it only what that leaves.
"""

from simpy import Environment, Event
from simpy.events import Timeout

from servesim.cost.base import StepTimer
from servesim.engine.arrivals import NEVER, Arrivals, ClientArrivals
from servesim.engine.clock import Arrival
from servesim.engine.observer import Observer, Progress
from servesim.engine.recorder import Recorder
from servesim.engine.under_way import Run, Step
from servesim.policies.admission.base import Admission, EngineLoad
from servesim.records import Request, StepPlan
from servesim.scheduler.base import Scheduler
from servesim.scheduler.fast_lane import FastLane, Surroundings, fast_lane_of

_NO_DRAFTS: dict[int, int] = {}
_NO_ARRIVALS = Arrivals((), ())
_DECISIONS_PER_REPORT = 256
_NO_LIMIT = 2**62


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
        self._arrivals: Arrivals | ClientArrivals = _NO_ARRIVALS
        self._around = Surroundings(_NO_ARRIVALS, timer, recorder)
        self._under_way: Run | Step | None = None
        self._end_ps = NEVER  # of it; NEVER: asleep
        self._event: Event | None = None  # the one waited for; others have lapsed
        self.num_decisions = self._empty_plans = 0
        self._fast_lane: FastLane | None = None
        if admission is None and not recorder.keeps_steps:
            self._fast_lane = fast_lane_of(scheduler)

    def serve(self, arrivals: Arrivals | ClientArrivals) -> None:
        """From now on, take these requests in as they arrive."""
        self._arrivals = arrivals
        self._around = Surroundings(arrivals, self._timer, self._recorder)
        self._wait(int(self._env.now))

    def submit(self, request: Request, predicted_tokens: float) -> None:
        """A request reaches the engine now."""
        before = self._end_ps
        self._receive(request, predicted_tokens, int(self._env.now))
        if self._end_ps < before:
            self._wait(min(self._end_ps, self._arrivals.next_ps))

    def stop(self, now_ps: int) -> None:
        """The simulation ends at `now_ps`: count what has been delivered before it."""
        run = self._under_way
        if type(run) is Run:
            steps = run.durations.steps_until(now_ps - run.start_ps)
            if run.durations.total(steps) >= now_ps - run.start_ps:
                steps -= 1  # its end is not before the simulation's
            if steps:
                self._finish_run(run, steps, run.start_ps + run.durations.total(steps))
        self._recorder.left_group(self._scheduler.decoding())
        if type(run) is Run:
            self._scheduler.advance(1)  # the step in flight was planned: its look-ups may count

    def _wait(self, due_ps: int) -> None:
        """Be called at `due_ps`: before all step ends of that instant if a request arrives."""
        arrives = due_ps == self._arrivals.next_ps
        kind = Arrival if arrives else Timeout
        self._event = kind(self._env, due_ps - int(self._env.now))
        self._event.callbacks.append(self._go_on)

    def _go_on(self, event: Event) -> None:
        """What was waited for is due: go on until something else in the simulation comes first.

        Arrivals before the end of what is under way, and that before the next plan. Nothing that
        is called from here schedules an event.
        """
        if event is not self._event:
            return
        arrivals, due = self._arrivals, int(self._env.now)
        until = int(min(self._env.peek(), NEVER))
        while True:
            if arrivals.next_ps <= due:
                request, predicted_tokens = arrivals.take()
                self._receive(request, predicted_tokens, due)
            elif self._end_ps <= due:
                self._apply(due)
                while arrivals.next_ps <= due:  # whom the end of a reply made send at once
                    request, predicted_tokens = arrivals.take()
                    self._receive(request, predicted_tokens, due)
                if self._fast_lane is not None:
                    due = self._drive(self._fast_lane, due, until)
                if self._under_way is None:
                    duration_ps = self._begin(due)
                    self._end_ps = NEVER if duration_ps is None else due + duration_ps
            due = self._end_ps
            if arrivals.next_ps < due:
                due = arrivals.next_ps
            if due >= until:
                break
        if due < NEVER:
            self._wait(due)

    def _drive(self, fast_lane: FastLane, now: int, until: int) -> int:
        """Let the scheduler go on alone; when it stopped.

        Then the next decision is due, or a step is under way that ends too late for it.
        """
        if self._observer is None:
            most = _NO_LIMIT
        else:
            most = _DECISIONS_PER_REPORT - 1 - self.num_decisions % _DECISIONS_PER_REPORT
        stretch = fast_lane.drive(now, until, most, self._around)
        now = stretch.now_ps
        self.num_decisions += stretch.decisions
        if stretch.step is not None:
            plan, time = stretch.step
            waiting, used = self._scheduler.load()
            self._under_way = Step(now, plan, time, waiting, used, 0)
            self._end_ps = now + time.duration_ps
        return now

    def _receive(self, request: Request, predicted_tokens: float, now: int) -> None:
        """A request arrives: refuse it, or queue it and see whether that cuts what is under way."""
        reason = self._scheduler.reject_reason(request)
        if reason is None and self._admission is not None:
            self._look(now)
            reason = self._admission.refuse(request, self._load_now())
        if reason is not None:
            self._recorder.rejected(request, reason)
            self._arrivals.ended((request.rid,), now)
            return
        self._recorder.queued(request, now)
        plan_may_change = self._scheduler.add(request, predicted_tokens)
        under_way = self._under_way
        if type(under_way) is Run:
            under_way.arrivals_ps.append(now)
            if plan_may_change:
                self._cut(under_way, now)
        elif under_way is None:
            # asleep: wake up after all that arrives at this instant
            self._end_ps = now

    def _cut(self, run: Run, now: int) -> None:
        """End the run at the first step boundary from now on."""
        steps = run.durations.steps_until(now - run.start_ps)
        if steps < run.steps:
            run.steps = steps
            self._end_ps = run.start_ps + run.durations.total(steps)

    def _look(self, now: int) -> None:
        """Plan the step under way by itself, so that the engine's load is that of this moment.

        In the middle of a run it is that of the run's beginning.
        """
        run = self._under_way
        if type(run) is not Run:
            return
        done = run.durations.steps_until(now - run.start_ps) - 1
        start = run.start_ps + run.durations.total(done)
        if done:
            self._finish_run(run, done, start)
        self._end_ps = start + self._step(start)

    def _load_now(self) -> EngineLoad:
        scheduler = self._scheduler
        waiting, used = scheduler.load()
        return EngineLoad(waiting, scheduler.num_running, scheduler.kv_blocks, used)

    def _apply(self, now: int) -> None:
        """The run or step under way ends."""
        recorder, under_way = self._recorder, self._under_way
        if type(under_way) is Run:
            self._finish_run(under_way, under_way.steps, now)
        elif type(under_way) is Step:
            outcome = self._scheduler.update(under_way.plan, _NO_DRAFTS)
            recorder.stepped(under_way, outcome, now)
            if outcome.finished:
                self._arrivals.ended(outcome.finished, now)
        self._under_way = None
        self.num_decisions += 1
        if self._observer is not None and self.num_decisions % _DECISIONS_PER_REPORT == 0:
            self._observer(Progress(now, recorder.num_done, recorder.num_steps))

    def _finish_run(self, run: Run, steps: int, now: int) -> None:
        scheduler, recorder = self._scheduler, self._recorder
        taken = scheduler.advance(steps)
        recorder.ran(run.durations, run.decodes.seqs, run.blocks_used, taken, now)
        recorder.keep_run(run, taken)
        outcome = scheduler.end_run()
        if outcome.finished:
            recorder.ended(outcome)
            self._arrivals.ended(outcome.finished, now)

    def _begin(self, now: int) -> int | None:
        """Decide what comes next; its duration, or None if there is nothing to do."""
        scheduler = self._scheduler
        steps = scheduler.steady_steps()
        if steps:
            return self._run(now, steps)
        if scheduler.num_running or scheduler.num_waiting:
            return self._step(now)
        return None

    def _run(self, now: int, steps: int) -> int:
        scheduler = self._scheduler
        decodes = scheduler.next_decodes()
        durations = self._timer.decode_run(decodes, steps)
        steps = durations.steps
        waiting, used = scheduler.load()
        unused = self._slots_unused() if self._recorder.keeps_steps else 0
        self._under_way = Run(now, decodes, durations, steps, used, waiting, unused, [])
        return durations.total(steps)

    def _step(self, now: int) -> int:
        scheduler, recorder = self._scheduler, self._recorder
        plan = scheduler.schedule(now)
        if not plan.work or self._empty_plans:
            self._check_progress(plan, now)
        time = self._timer.step_time(plan.padded() if plan.padded_to else plan)
        recorder.planned(plan, now)
        waiting, used = scheduler.load()
        unused = self._slots_unused() if recorder.keeps_steps else 0
        self._under_way = Step(now, plan, time, waiting, used, unused)
        return time.duration_ps

    def _check_progress(self, plan: StepPlan, now: int) -> None:
        """A plan may be empty once, when the only running request was its own victim."""
        self._empty_plans = 0 if plan.num_seqs else self._empty_plans + 1
        if self._empty_plans > 1:
            raise RuntimeError(f"scheduler is stuck at {now} ps with requests waiting")

    def _slots_unused(self) -> int:
        return self._scheduler.kv_slots_unused if self._recorder.keeps_steps else 0
