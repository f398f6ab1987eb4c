"""Latency columns: mean and percentiles of TTFT, TPOT, ITL, E2E and queueing time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.metrics.base import Row, Value, e2e_s, queue_s, tpot_s, ttft_s
from servesim.metrics.distribution import Distribution
from servesim.records import RequestRecord, RunRecord
from servesim.units import PS_PER_S

_PER_REQUEST: dict[str, Callable[[RequestRecord], float | None]] = {
    "ttft": ttft_s,
    "tpot": tpot_s,
    "e2e": e2e_s,
    "queue": queue_s,
}


@dataclass(frozen=True, slots=True)
class Latency:
    """`<metric>_mean_s` and `<metric>_p<q>_s`; mean TPOT weighs requests, mean ITL weighs tokens.

    Attributes:
        percentiles: which, each in [0, 100].
    """

    percentiles: Sequence[float] = (50, 90, 99)

    def __post_init__(self) -> None:
        if isinstance(self.percentiles, str) or not isinstance(self.percentiles, Sequence):
            reason = "must be a list of numbers, e.g. [50, 99]"
            raise SettingError("percentiles", self.percentiles, reason)
        for q in self.percentiles:
            if not 0 <= checks.number("percentiles", q) <= 100:
                raise SettingError("percentiles", q, "must be in [0, 100]")

    def measure(self, run: RunRecord) -> Row:
        """Over all requests that have the latency; cut or rejected ones are counted elsewhere."""
        row: dict[str, Value] = {}
        for name, latency in _PER_REQUEST.items():
            values = [v for v in map(latency, run.requests) if v is not None]
            row |= self._columns(name, Distribution.of(values))
        gaps = run.itl_ps
        seconds = (gaps.values_ps / PS_PER_S).tolist()
        return row | self._columns("itl", Distribution.weighted(seconds, gaps.counts.tolist()))

    def _columns(self, name: str, values: Distribution) -> dict[str, Value]:
        if not values.count:
            none: dict[str, Value] = {f"{name}_p{q:g}_s": None for q in self.percentiles}
            return {f"{name}_mean_s": None, **none}
        columns: dict[str, Value] = {f"{name}_mean_s": values.mean()}
        for q in self.percentiles:
            columns[f"{name}_p{q:g}_s"] = values.percentile(q)
        return columns
