"""Carry out one run: load, engine, cost, metrics."""

from servesim.app.result import Result
from servesim.app.setup import Setup
from servesim.cost.base import CostModel
from servesim.engine.observer import Observer
from servesim.engine.simulation import RunOptions, run
from servesim.errors import SettingError, TraceError
from servesim.metrics.base import Value
from servesim.records import RunRecord
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
        keep_steps: whether to keep a record per step.
        observer: told now and then how far the run has come.
        load: the workload's requests, where they have been made already.
    """
    load = load or setup.workload.load(setup.seed)
    if not load.requests:
        raise TraceError(setup.labels.get("workload", "workload"), None, "holds no request")
    budget = setup.budget()
    engine = setup.engine(budget)
    timer = setup.cost.bind(setup.deployment)
    until = None if setup.until_s is None else seconds_to_ps(setup.until_s)
    predictions = [setup.predictor.predict(request, setup.seed) for request in load.requests]
    options = RunOptions(keep_steps, until, observer)
    try:
        record = run(
            load.requests, predictions, setup.profile.start(engine, setup.stepwise), timer, options
        )
    except SettingError as error:
        raise error.within("scheduler") from None
    row: dict[str, Value] = {**_identity(setup), **load.counts}
    for metric in setup.metrics.values():
        row |= metric.measure(record)
    row["num_gpu_blocks"] = budget.num_gpu_blocks
    row["steps_outside_fit"] = record.totals.outside_any
    row["steps_skipped"] = record.totals.skipped_steps
    notes = [
        setup.profile.describe(engine),
        budget.describe(),
        setup.cost.describe(),
        *load.notes,
    ]
    if setup.labels.get("policies/order", "").startswith("sjf"):
        notes.append(f"predicted lengths: {setup.predictor.describe()}")
    warnings = _warnings(record, setup.cost, row)
    if engine.max_model_len > budget.kv_cache_tokens:
        warnings.insert(0, _too_small(engine.max_model_len, budget.kv_cache_tokens))
    return Result(row, notes, warnings, record)


def _identity(setup: Setup) -> dict[str, Value]:
    """The columns that say which run a row is."""
    labels = {name.rpartition("/")[2]: label for name, label in setup.labels.items()}
    rate = getattr(setup.workload, "rate_rps", None)
    keys = ("model", "hardware", "cost", "workload", "scheduler", "order")
    row: dict[str, Value] = {key: labels.get(key) for key in keys}
    return {**row, "tp": setup.deployment.tp, "rate_rps": rate, "seed": setup.seed}


def _warnings(record: RunRecord, cost: CostModel, row: dict[str, Value]) -> list[str]:
    warnings = []
    if row.get("overloaded"):
        rho = row["rho"]
        warnings.append(
            f"overloaded: {row['offered_rps']:.2f} requests/s come in"
            + (f", rho {rho:.2f}" if isinstance(rho, float) else ", none is started")
            + f", the queue grows by {row['backlog_growth_rps']:.2f} requests/s; "
            "latencies depend on how long the run is"
        )
    outside = record.totals.outside
    if outside:
        share = record.totals.outside_any / record.totals.steps
        axes = ", ".join(f"{a} beyond {_range(cost, a)}" for a in sorted(outside))
        warnings.append(
            f"{share:.1%} of steps are outside the range the cost was fitted on: {axes}"
        )
    for status in ("rejected", "unfinished", "failed"):
        if row.get(status):
            reason = f" ({row['rejected_reason']})" if status == "rejected" else ""
            warnings.append(f"{row[status]} of {row['requests']} requests {status}{reason}")
    return warnings


def _range(cost: CostModel, axis: str) -> str:
    low, high = cost.axis_range(axis)
    return f"{low:g}…{high:g}"


def _too_small(max_model_len: int, tokens: int) -> str:
    return (
        f"the cache holds {tokens} tokens, less than max_model_len {max_model_len}: "
        "the engine would refuse to start; here only requests that long are rejected"
    )
