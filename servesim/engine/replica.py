"""One engine on its GPUs: asks the scheduler, charges the cost, writes records."""

from collections.abc import Generator

from simpy import Environment, Event

from servesim.cost.base import StepTimer
from servesim.engine.observer import Observer, Progress
from servesim.engine.recorder import Recorder
from servesim.records import Request
from servesim.scheduler.base import Scheduler

_NO_DRAFTS: dict[int, int] = {}
_STEPS_PER_REPORT = 256


class Replica:
    """A SimPy process around one scheduler.

    A step is plan, time, apply. A request that arrives during a step is seen by the next plan.
    """

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        timer: StepTimer,
        recorder: Recorder,
        observer: Observer | None = None,
    ) -> None:
        self._env = env
        self._scheduler = scheduler
        self._timer = timer
        self._recorder = recorder
        self._observer = observer
        self._wake: Event | None = None
        env.process(self._run())

    def submit(self, request: Request, predicted_tokens: float) -> None:
        """A request reaches the engine now."""
        reason = self._scheduler.reject_reason(request)
        if reason is not None:
            self._recorder.rejected(request, reason)
            return
        self._recorder.queued(request, int(self._env.now))
        self._scheduler.add(request, predicted_tokens)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def _run(self) -> Generator[Event, None, None]:
        env, scheduler, recorder = self._env, self._scheduler, self._recorder
        idle_plans = 0
        while True:
            if not scheduler.num_running and not scheduler.num_waiting:
                self._wake = Event(env)
                yield self._wake
            start = int(env.now)
            plan = scheduler.schedule(start)
            # A plan may be empty once, when the only running request was its own victim.
            idle_plans = 0 if plan.work else idle_plans + 1
            if idle_plans > 1:
                raise RuntimeError(f"scheduler is stuck at {start} ps with requests waiting")
            time = self._timer.step_time(plan)
            recorder.planned(plan, start, time, scheduler.num_waiting, scheduler.kv_blocks_used)
            yield env.timeout(time.duration_ps)
            now = int(env.now)
            recorder.updated(scheduler.update(plan, _NO_DRAFTS), now)
            if self._observer is not None and recorder.num_steps % _STEPS_PER_REPORT == 0:
                self._observer(Progress(now, recorder.num_done, recorder.num_steps))
