"""How much load a case offers: requests at a time, and the KV that they hold.

Requests at a time are the users of a closed loop, the size of a batch, or by Little's law the rate
times the measured E2E latency (TTFT + (reply − 1) × TPOT where E2E is not recorded; the predicted
one where neither is), at most all requests and at most `max_num_seqs` of each simulated rank, where
that is recorded.

Offered KV is that number × (prompt + reply), tokens, a shared prefix once per group. A case is
congested where this exceeds what the cache holds: requests then wait for memory.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from validation.cases.case import Case
from validation.cases.workloads import ClosedLoop, OpenLoop, StaticBatch
from validation.compare.statistics import ServedRequest
from validation.score.workloads import mean_rate_rps

_MEANS = ("mean", "unspecified", "p50")


class Offered(NamedTuple):
    """Load of a case, on those of its data-parallel ranks that are simulated.

    Attributes:
        concurrency: requests at a time.
        kv_tokens: KV that they hold when each is at its end, tokens.
    """

    concurrency: float
    kv_tokens: float


def offered(case: Case, served: Sequence[ServedRequest], share: int = 1) -> Offered:
    """What the case asks of what is simulated of it.

    Args:
        case: what was measured.
        served: its requests as simulated.
        share: the simulated ranks get one part in so many of the load.
    """
    at_a_time = _at_a_time(case, served, share)
    if case.limits.max_num_seqs is not None:
        at_a_time = min(at_a_time, case.limits.max_num_seqs * case.dp // share)
    tokens = math.fsum(r.prompt_tokens + r.output_tokens for r in served) / max(len(served), 1)
    prefix = case.workload.prefix if isinstance(case.workload, OpenLoop) else None
    if prefix is None:
        return Offered(at_a_time, at_a_time * tokens)
    groups = min(prefix.groups, at_a_time)
    return Offered(at_a_time, at_a_time * (tokens - prefix.tokens) + groups * prefix.tokens)


def _at_a_time(case: Case, served: Sequence[ServedRequest], share: int) -> float:
    workload = case.workload
    if isinstance(workload, ClosedLoop):
        return math.ceil(workload.concurrency / share)
    if isinstance(workload, StaticBatch):
        return math.ceil(workload.batch / share)
    if isinstance(workload, OpenLoop):
        rate_rps = mean_rate_rps(workload) / share
    else:
        arrivals = [r.arrival_s for r in served]
        span_s = max(arrivals, default=0.0) - min(arrivals, default=0.0)
        rate_rps = len(served) / span_s if span_s > 0 else math.inf
    return min(rate_rps * _e2e_s(case, served), len(served))


def _e2e_s(case: Case, served: Sequence[ServedRequest]) -> float:
    """Mean latency of a request, measured if possible."""
    known = {metric: _middle(case, metric) for metric in ("e2e_ms", "ttft_ms", "tpot_ms")}
    if known["e2e_ms"] is not None:
        return known["e2e_ms"] / 1e3
    number = max(len(served), 1)
    replies = math.fsum(r.output_tokens for r in served) / number
    if known["ttft_ms"] is not None and known["tpot_ms"] is not None:
        return (known["ttft_ms"] + (replies - 1) * known["tpot_ms"]) / 1e3
    return math.fsum(r.last_token_s - r.arrival_s for r in served) / number


def _middle(case: Case, metric: str) -> float | None:
    figures = case.measured.get(metric, {})
    return next((figures[name] for name in _MEANS if name in figures), None)
