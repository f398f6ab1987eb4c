"""Goodput under service-level objectives."""

from dataclasses import dataclass

from servesim import checks
from servesim.metrics.base import Row, duration_s, rate, tpot_s, ttft_s
from servesim.records import RequestRecord, RunRecord


@dataclass(frozen=True, slots=True)
class Goodput:
    """Good requests per second at the offered load, and their share of all submitted ones.

    Engine benchmarks call this goodput; DistServe's goodput is the largest rate at which 90 % of
    the requests are good. A limit is met at equality, as in vLLM's `--goodput`.

    Attributes:
        ttft_s: limit on the time to the first token, seconds.
        tpot_s: limit on the time per further token, seconds; a reply of one token meets it.
    """

    ttft_s: float = 2.0
    tpot_s: float = 0.1

    def __post_init__(self) -> None:
        checks.positive("ttft_s", self.ttft_s)
        checks.positive("tpot_s", self.tpot_s)

    def met(self, record: RequestRecord) -> bool:
        """Whether a request finished within both limits."""
        first, per_token = ttft_s(record), tpot_s(record)
        if record.status != "finished" or first is None:
            return False
        return first <= self.ttft_s and (per_token is None or per_token <= self.tpot_s)

    def measure(self, run: RunRecord) -> Row:
        """Rejected and unfinished requests are not good, and stay in the denominator."""
        good = sum(map(self.met, run.requests))
        return {
            "goodput_rps": rate(good, duration_s(run)),
            "slo_attainment": good / len(run.requests) if run.requests else None,
            "slo_ttft_s": self.ttft_s,
            "slo_tpot_s": self.tpot_s,
        }
