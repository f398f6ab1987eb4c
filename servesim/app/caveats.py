"""What makes a run's numbers doubtful, one line each."""

from collections.abc import Mapping

from servesim.cost.base import CostModel
from servesim.kv.budget import KVBudget
from servesim.metrics.base import Value
from servesim.records import RunRecord


def too_small(max_model_len: int, budget: KVBudget) -> list[str]:
    """The cache could not hold one request of the greatest length."""
    if max_model_len <= budget.kv_cache_tokens:
        return []
    return [
        f"the cache holds {budget.kv_cache_tokens} tokens, less than max_model_len "
        f"{max_model_len}: the engine would refuse to start; here only requests that long are "
        "rejected"
    ]


def mismatched(mismatch: str) -> list[str]:
    """The cost was fitted on something else, and used all the same."""
    if not mismatch:
        return []
    return [f"cost.allow_mismatch=true: step times are those of another deployment: {mismatch}"]


def overloaded(row: Mapping[str, Value]) -> list[str]:
    """More comes in than is served."""
    if not row.get("overloaded"):
        return []
    rho = row["rho"]
    return [
        f"overloaded: {row['offered_rps']:.2f} requests/s come in"
        + (f", rho {rho:.2f}" if isinstance(rho, float) else ", none is started")
        + f", the queue grows by {row['backlog_growth_rps']:.2f} requests/s; "
        "latencies depend on how long the run is"
    ]


def axes_outside(record: RunRecord, cost: CostModel) -> str:
    """Axes on which steps were outside the fitted range, with it: `tokens 1…2048`."""
    ranges = {axis: cost.axis_range(axis) for axis in sorted(record.totals.outside)}
    return ", ".join(f"{axis} {low:g}…{high:g}" for axis, (low, high) in ranges.items())


def outside_fit(record: RunRecord, axes: str) -> list[str]:
    """Steps were extrapolated."""
    if not axes:
        return []
    totals = record.totals
    steps, time = totals.outside_any / totals.steps, totals.outside_ps / max(totals.busy_ps, 1)
    return [
        f"{steps:.1%} of steps, {time:.1%} of the engine's time, are outside the range "
        f"that the cost was fitted on: {axes}"
    ]


def not_finished(row: Mapping[str, Value]) -> list[str]:
    """Requests that got no full reply."""
    lines = []
    for status in ("rejected", "unfinished", "failed"):
        if row.get(status):
            reason = f" ({row['rejected_reason']})" if status == "rejected" else ""
            lines.append(f"{row[status]} of {row['requests']} requests {status}{reason}")
    return lines
