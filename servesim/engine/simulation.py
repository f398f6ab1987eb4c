"""One run: a load, a scheduler and a timer in, records out."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from simpy import Environment

from servesim.cost.base import StepTimer
from servesim.engine.arrivals import Arrivals, ClientArrivals, OpenLoop
from servesim.engine.front_end import NO_FRONT_END, FrontEnd
from servesim.engine.lockstep import replica_for, with_ranks
from servesim.engine.observer import Observer
from servesim.engine.recorder import Recorder
from servesim.errors import SettingError
from servesim.policies.admission.base import Admission
from servesim.records import Request, RunRecord
from servesim.scheduler.base import Scheduler
from servesim.workload.release import Release


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out.

    Attributes:
        keep_steps: whether to keep a record per step.
        until_ps: when to stop; what is unfinished then is recorded as unfinished.
        observer: told now and then how far the run has come.
        admission: whom the front end refuses; None refuses nobody.
        release: how clients wait for replies before they send; None is an open loop.
        front_end: what lies between the clients and the engine.
    """

    keep_steps: bool = False
    until_ps: int | None = None
    observer: Observer | None = None
    admission: Admission | None = None
    release: Release | None = None
    front_end: FrontEnd = NO_FRONT_END


class Simulation:
    """One run in its three parts: set up, `run`, `record`.

    Args:
        requests: the load, sorted by arrival; each at the place of its number where there is a
            release or a front end.
        predictions: predicted reply tokens, one per request.
        scheduler: fresh, with empty queues.
        timer: cost of a step.
        options: see `RunOptions`.

    Raises:
        SettingError: the scheduler expects drafts.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        predictions: Sequence[float],
        scheduler: Scheduler,
        timer: StepTimer,
        options: RunOptions | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._options = options or RunOptions()
        if scheduler.num_speculative_tokens:
            drafts = scheduler.num_speculative_tokens
            reason = "the simulation has nobody who proposes drafts; nearest: 0"
            raise SettingError("num_speculative_tokens", drafts, reason)
        self._env = Environment(initial_time=0)
        self._recorder = Recorder(self._options.keep_steps, scheduler.block_size)
        self._replica = replica_for(scheduler)(
            self._env,
            scheduler,
            timer,
            self._recorder,
            self._options.observer,
            self._options.admission,
        )
        self._arrivals = _arrivals(requests, predictions, self._options)
        self._replica.serve(self._arrivals)

    def run(self) -> None:
        """Serve the load, to its end or to `until_ps`."""
        until = self._options.until_ps
        with _collector_paused():
            self._env.run(until=until)
        if until is not None:
            self._replica.stop(until)

    def record(self) -> RunRecord:
        """What happened."""
        recorder, options = self._recorder, self._options
        output_ps = options.front_end.output_ps
        requests = recorder.records(self._arrivals.not_taken(), output_ps)
        finished = all(request.status in ("finished", "rejected") for request in requests)
        return RunRecord(
            requests=with_ranks(requests, self._scheduler),
            itl_ps=recorder.gaps(),
            totals=replace(recorder.totals, decisions=self._replica.num_decisions),
            steps=tuple(recorder.steps),
            prefix_stats=self._scheduler.prefix_stats,
            kv_blocks=self._scheduler.kv_blocks,
            end_ps=self._end_ps(output_ps) if finished else int(self._env.now),
            block_size=self._scheduler.block_size,
            self_limiting=options.release is not None and options.release.self_limiting,
        )

    def _end_ps(self, output_ps: int) -> int:
        """When the last client has its last token."""
        last_ps = self._recorder.last_end_ps
        return last_ps + output_ps if last_ps else 0


def _arrivals(
    requests: Sequence[Request], predictions: Sequence[float], options: RunOptions
) -> Arrivals | ClientArrivals:
    release, front_end = options.release, options.front_end
    if release is None and not front_end.is_there:
        return Arrivals(requests, predictions)
    clients = OpenLoop(requests) if release is None else release.begin(requests)
    return ClientArrivals(requests, predictions, clients, front_end)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No search for reference cycles: the loop makes none, and all records would be walked."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def run(
    requests: Sequence[Request],
    predictions: Sequence[float],
    scheduler: Scheduler,
    timer: StepTimer,
    options: RunOptions | None = None,
) -> RunRecord:
    """A `Simulation` from set-up to record."""
    simulation = Simulation(requests, predictions, scheduler, timer, options)
    simulation.run()
    return simulation.record()
