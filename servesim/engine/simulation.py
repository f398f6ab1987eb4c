"""One run: a load, a scheduler and a timer in, records out."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from simpy import Environment, Event

from servesim.cost.base import StepTimer
from servesim.engine.clock import Arrival
from servesim.engine.observer import Observer
from servesim.engine.recorder import Recorder
from servesim.engine.replica import Replica
from servesim.errors import SettingError
from servesim.records import Request, RunRecord
from servesim.scheduler.base import Scheduler


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out; none of it changes what happens up to its end.

    Attributes:
        keep_steps: whether to keep a record per step.
        until_ps: when to stop; what is unfinished then is recorded as unfinished.
        observer: told now and then how far the run has come.
    """

    keep_steps: bool = False
    until_ps: int | None = None
    observer: Observer | None = None


def run(
    requests: Sequence[Request],
    predictions: Sequence[float],
    scheduler: Scheduler,
    timer: StepTimer,
    options: RunOptions | None = None,
) -> RunRecord:
    """Serve `requests` (sorted by arrival) on one replica.

    Args:
        requests: the load.
        predictions: predicted reply tokens, one per request.
        scheduler: fresh, with empty queues.
        timer: cost of a step.
        options: see `RunOptions`.
    """
    options = options or RunOptions()
    if scheduler.num_speculative_tokens:
        drafts = scheduler.num_speculative_tokens
        reason = "the simulation has nobody who proposes drafts; nearest: 0"
        raise SettingError("num_speculative_tokens", drafts, reason)
    env = Environment(initial_time=0)
    recorder = Recorder(options.keep_steps)
    replica = Replica(env, scheduler, timer, recorder, options.observer)
    env.process(_arrive(env, replica, requests, predictions))
    env.run(until=options.until_ps)
    if options.until_ps is not None:
        replica.stop(options.until_ps)
    records = recorder.records(not_arrived=tuple(requests[recorder.num_seen :]))
    finished = all(record.status in ("finished", "rejected") for record in records)
    return RunRecord(
        requests=records,
        itl_ps=recorder.gaps(),
        totals=replace(recorder.totals, decisions=replica.num_decisions),
        steps=tuple(recorder.steps),
        prefix_stats=scheduler.prefix_stats,
        kv_blocks=scheduler.kv_blocks,
        end_ps=recorder.last_end_ps if finished else int(env.now),
    )


def _arrive(
    env: Environment,
    replica: Replica,
    requests: Sequence[Request],
    predictions: Sequence[float],
) -> Generator[Event, None, None]:
    for request, predicted_tokens in zip(requests, predictions, strict=True):
        yield Arrival(env, request.arrival_ps - int(env.now))
        replica.submit(request, predicted_tokens)
