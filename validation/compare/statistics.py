"""The statistics that a serving run is judged by, from per-request times, measured or simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servesim.metrics.distribution import Distribution

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One finished request; seconds on one clock."""

    arrival_s: float
    first_token_s: float
    last_token_s: float
    output_tokens: int


def statistics(requests: Sequence[ServedRequest]) -> dict[str, float]:
    """Name → value: TTFT, TPOT and E2E at mean, p50, p90 and p99, makespan, throughput.

    TPOT leaves out replies of one token. Makespan is first arrival to last token.
    """
    latencies = {
        "TTFT, s": [r.first_token_s - r.arrival_s for r in requests],
        "TPOT, ms": [
            1e3 * (r.last_token_s - r.first_token_s) / (r.output_tokens - 1)
            for r in requests
            if r.output_tokens > 1
        ],
        "E2E, s": [r.last_token_s - r.arrival_s for r in requests],
    }
    row: dict[str, float] = {}
    for name, values in latencies.items():
        distribution = Distribution.of(values)
        row[f"{name}, mean"] = distribution.mean()
        for q in PERCENTILES:
            row[f"{name}, p{q}"] = distribution.percentile(q)
    makespan = max(r.last_token_s for r in requests) - min(r.arrival_s for r in requests)
    row["makespan, s"] = makespan
    row["throughput, output tokens/s"] = sum(r.output_tokens for r in requests) / makespan
    return row


def relative_error(simulated: float, measured: float) -> float:
    """Signed error as a share of what was measured."""
    return (simulated - measured) / measured


def errors(simulated: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Relative error of each statistic that both have."""
    return {k: relative_error(simulated[k], measured[k]) for k in measured if k in simulated}
