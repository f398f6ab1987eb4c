"""The figures that a serving run is judged by, measured or simulated.

Names and units are those of a case (`validation/cases`): latencies in milliseconds by metric and
statistic (mean or a percentile, linear between order statistics), totals by metric.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from servesim.metrics.distribution import Distribution
from servesim.records import RunRecord
from servesim.units import PS_PER_S, ps_to_seconds

MS_PER_S = 1e3
UNSPECIFIED = "unspecified"  # a source that does not say which statistic it means


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One finished request; seconds on one clock."""

    arrival_s: float
    first_token_s: float
    last_token_s: float
    output_tokens: int
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to.

    Attributes:
        latencies: ttft_ms, tpot_ms, e2e_ms and, where the gaps are known, itl_ms.
        totals: makespan_s, rates and prefix-cache counts.
    """

    latencies: Mapping[str, Distribution]
    totals: Mapping[str, float]

    def value(self, metric: str, statistic: str) -> float | None:
        """One figure, or None where the run does not have it.

        Args:
            metric: e.g. "ttft_ms" or "makespan_s".
            statistic: "mean", "p50", "p99"; of a total any. `unspecified` is taken for the mean.
        """
        if metric in self.totals:
            return self.totals[metric]
        distribution = self.latencies.get(metric)
        if distribution is None or not distribution.count:
            return None
        if statistic in ("mean", UNSPECIFIED):
            return distribution.mean()
        percentile = re.fullmatch(r"p(\d+(?:\.\d+)?)", statistic)
        return distribution.percentile(float(percentile[1])) if percentile else None


def of_requests(requests: Sequence[ServedRequest]) -> Figures:
    """Figures of finished requests.

    TPOT leaves out replies of one token. Makespan is first arrival to last token.
    """
    latencies = {
        "ttft_ms": [MS_PER_S * (r.first_token_s - r.arrival_s) for r in requests],
        "tpot_ms": [
            MS_PER_S * (r.last_token_s - r.first_token_s) / (r.output_tokens - 1)
            for r in requests
            if r.output_tokens > 1
        ],
        "e2e_ms": [MS_PER_S * (r.last_token_s - r.arrival_s) for r in requests],
    }
    return Figures(
        {name: Distribution.of(values) for name, values in latencies.items()}, _totals(requests)
    )


def of_record(record: RunRecord, rids: Collection[int] | None = None) -> Figures:
    """Figures of a simulated run, over the finished ones of its requests.

    Args:
        record: the run.
        rids: the requests to look at, e.g. those of a stage; None looks at all. The gaps between
            tokens and the prefix-cache counts are known of the whole run only.
    """
    figures = of_requests(served(record, rids))
    if rids is not None:
        return figures
    gaps = record.itl_ps
    gaps_ms = (gaps.values_ps / (PS_PER_S / MS_PER_S)).tolist()
    itl = {"itl_ms": Distribution.weighted(gaps_ms, gaps.counts.tolist())}
    prefix = {
        "prefix_hit_tokens": float(record.prefix_stats.hits),
        "prefix_query_tokens": float(record.prefix_stats.queries),
    }
    return Figures({**figures.latencies, **itl}, {**figures.totals, **prefix})


def served(record: RunRecord, rids: Collection[int] | None = None) -> list[ServedRequest]:
    """The finished requests of a simulated run."""
    return [
        ServedRequest(
            ps_to_seconds(r.arrival_ps),
            ps_to_seconds(r.first_token_ps),
            ps_to_seconds(r.last_token_ps),
            r.output_tokens,
            r.prompt_tokens,
        )
        for r in record.requests
        if r.status == "finished"
        and r.first_token_ps is not None
        and r.last_token_ps is not None
        and (rids is None or r.rid in rids)
    ]


def _totals(requests: Sequence[ServedRequest]) -> dict[str, float]:
    if not requests:
        return {}
    makespan = max(r.last_token_s for r in requests) - min(r.arrival_s for r in requests)
    replies, prompts = (sum(column) for column in _tokens(requests))
    return {
        "makespan_s": makespan,
        "output_tokens_per_s": _rate(replies, makespan),
        "total_tokens_per_s": _rate(replies + prompts, makespan),
        "requests_per_s": _rate(len(requests), makespan),
    }


def _tokens(requests: Sequence[ServedRequest]) -> tuple[list[int], list[int]]:
    return [r.output_tokens for r in requests], [r.prompt_tokens for r in requests]


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else math.nan
