"""One run: a load, a scheduler and a timer in, records out."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from simpy import Environment

from servesim.cost.base import StepTimer
from servesim.engine.arrivals import Arrivals
from servesim.engine.observer import Observer
from servesim.engine.pipelined import PipelinedReplica
from servesim.engine.recorder import Recorder
from servesim.engine.replica import Replica
from servesim.errors import SettingError
from servesim.policies.admission.base import Admission
from servesim.records import Request, RunRecord
from servesim.scheduler.base import Scheduler


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out.

    Attributes:
        keep_steps: whether to keep a record per step.
        until_ps: when to stop; what is unfinished then is recorded as unfinished.
        observer: told now and then how far the run has come.
        admission: whom the front end refuses; None refuses nobody.
    """

    keep_steps: bool = False
    until_ps: int | None = None
    observer: Observer | None = None
    admission: Admission | None = None


class Simulation:
    """One run in its three parts: set up, `run`, `record`.

    Args:
        requests: the load, sorted by arrival.
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
        self._requests, self._scheduler = requests, scheduler
        self._options = options or RunOptions()
        if scheduler.num_speculative_tokens:
            drafts = scheduler.num_speculative_tokens
            reason = "the simulation has nobody who proposes drafts; nearest: 0"
            raise SettingError("num_speculative_tokens", drafts, reason)
        self._env = Environment(initial_time=0)
        self._recorder = Recorder(self._options.keep_steps, scheduler.block_size)
        kind = PipelinedReplica if scheduler.pipeline_depth > 1 else Replica
        self._replica = kind(
            self._env,
            scheduler,
            timer,
            self._recorder,
            self._options.observer,
            self._options.admission,
        )
        self._replica.serve(Arrivals(requests, predictions))

    def run(self) -> None:
        """Serve the load, to its end or to `until_ps`."""
        until = self._options.until_ps
        with _collector_paused():
            self._env.run(until=until)
        if until is not None:
            self._replica.stop(until)

    def record(self) -> RunRecord:
        """What happened."""
        recorder = self._recorder
        requests = recorder.records(not_arrived=tuple(self._requests[recorder.num_seen :]))
        finished = all(request.status in ("finished", "rejected") for request in requests)
        return RunRecord(
            requests=requests,
            itl_ps=recorder.gaps(),
            totals=replace(recorder.totals, decisions=self._replica.num_decisions),
            steps=tuple(recorder.steps),
            prefix_stats=self._scheduler.prefix_stats,
            kv_blocks=self._scheduler.kv_blocks,
            end_ps=recorder.last_end_ps if finished else int(self._env.now),
            block_size=self._scheduler.block_size,
        )


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
