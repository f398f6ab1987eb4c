"""Prefix-cache hits and preemption."""

from dataclasses import dataclass

from servesim.metrics.base import Row
from servesim.records import RunRecord


@dataclass(frozen=True, slots=True)
class Cache:
    """What the KV cache saved and what its shortage cost."""

    def measure(self, run: RunRecord) -> Row:
        """The hit rate is the engine's: first admissions only, in tokens.

        A recomputed token is one whose KV was computed, lost to a preemption and computed again;
        its share is of all tokens that went through the model.
        """
        stats, tokens = run.prefix_stats, run.totals.tokens
        recomputed = sum(r.recomputed_tokens for r in run.requests)
        return {
            "prefix_hit_rate": stats.hits / stats.queries if stats.queries else None,
            "prefix_hit_tokens": stats.hits,
            "preemptions": sum(r.preemptions for r in run.requests),
            "preempted_requests": sum(r.preemptions > 0 for r in run.requests),
            "recomputed_tokens": recomputed,
            "recomputed_share": recomputed / tokens if tokens else None,
        }
