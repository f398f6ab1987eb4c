"""Carry out one run: load, engine, cost, metrics."""

from dataclasses import asdict, replace

from servesim.app import caveats, intervals, ranks
from servesim.app.result import Result
from servesim.app.setup import Setup
from servesim.engine.observer import Observer
from servesim.engine.simulation import RunOptions, Simulation
from servesim.errors import SettingError, TraceError
from servesim.kv.budget import KVBudget
from servesim.metrics.base import Value, needs_steps
from servesim.records import RunRecord
from servesim.scheduler.base import EngineSetup
from servesim.units import seconds_to_ps
from servesim.workload.base import Load


def execute(
    setup: Setup,
    keep_steps: bool = False,
    observer: Observer | None = None,
    load: Load | None = None,
) -> Result:
    """Run a setup.

    Args:
        setup: what to run.
        keep_steps: whether the result has a record per step; a metric may need them without.
        observer: told now and then how far the run has come.
        load: the workload's requests, where they have been made already.
    """
    load = load or setup.workload.load(setup.seed)
    if not load.requests:
        raise TraceError(setup.labels.get("workload", "workload"), None, "holds no request")
    budget = setup.budget()
    engine = setup.engine(budget)
    until = None if setup.until_s is None else seconds_to_ps(setup.until_s)
    recorded = keep_steps or any(map(needs_steps, setup.metrics.values()))
    options = RunOptions(recorded, until, observer, setup.admission, load.release, setup.front_end)
    record = _simulated(setup, load, engine, options)
    mismatch = setup.cost.mismatch(setup.deployment)
    axes = caveats.axes_outside(record, setup.cost)
    row = (
        _row(setup, load, record, budget)
        | _bounds(setup, load, record)
        | {
            "outside_fit": axes or None,
            "cost_mismatch": mismatch or None,
        }
    )
    warnings = [
        *caveats.too_small(engine.max_model_len, budget),
        *caveats.mismatched(mismatch),
        *load.warnings,
        *caveats.overloaded(row),
        *caveats.outside_fit(record, axes),
        *caveats.not_finished(row),
    ]
    if not keep_steps:
        record = replace(record, steps=())
    return Result(row, _notes(setup, load, budget, engine), warnings, record)


def _simulated(setup: Setup, load: Load, engine: EngineSetup, options: RunOptions) -> RunRecord:
    timer = ranks.timer_of(setup)
    predictions = [setup.predictor.predict(request, setup.seed) for request in load.requests]
    try:
        scheduler = ranks.scheduler_of(setup, engine)
        simulation = Simulation(load.requests, predictions, scheduler, timer, options)
    except SettingError as error:
        raise error.within("scheduler") from None
    try:
        simulation.run()
    except SettingError as error:  # block ids of a trace that the block size does not fit
        raise error.within("kv") from None
    return simulation.record()


def _row(setup: Setup, load: Load, record: RunRecord, budget: KVBudget) -> dict[str, Value]:
    """The summary: which run it is, what the load counted, the metrics, how it was done."""
    row: dict[str, Value] = {**_identity(setup), **load.counts}
    for metric in setup.metrics.values():
        row |= metric.measure(record)
    return row | {
        "num_gpu_blocks": budget.num_gpu_blocks,
        "steps_outside_fit": record.totals.outside_any,
        "steps_skipped": record.totals.skipped_steps,
    }


def _bounds(setup: Setup, load: Load, record: RunRecord) -> dict[str, Value]:
    """Intervals of the metrics, where they are asked for."""
    if not setup.intervals.replications:
        return {}
    columns = [column for metric in setup.metrics.values() for column in metric.measure(record)]
    return intervals.bounds(setup, columns, lambda other: execute(other, load=load).summary)


def _identity(setup: Setup) -> dict[str, Value]:
    """The columns that say which run a row is."""
    labels = {name.rpartition("/")[2]: label for name, label in setup.labels.items()}
    rate = getattr(setup.workload, "rate_rps", None)
    keys = ("model", "hardware", "cost", "workload", "scheduler", "order", "victim", "admission")
    row: dict[str, Value] = {key: labels.get(key) for key in keys}
    row |= {"tp": setup.deployment.tp, "rate_rps": rate, "seed": setup.seed}
    row |= ranks.columns(setup)
    if not setup.front_end.is_there:
        return row
    delays = {f"front_end_{name}": delay for name, delay in asdict(setup.front_end).items()}
    return {**row, "front_end": labels.get("front_end"), **delays}


def _notes(setup: Setup, load: Load, budget: KVBudget, engine: EngineSetup) -> list[str]:
    """What the numbers rest on."""
    return [
        setup.profile.describe(engine),
        budget.describe(),
        *ranks.notes(setup),
        setup.cost.describe(),
        *([setup.front_end.describe()] if setup.front_end.is_there else []),
        *load.notes,
        *([intervals.note(setup)] if setup.intervals.replications else []),
        f"predicted reply lengths, for orders that use them: {setup.predictor.describe()}",
    ]
