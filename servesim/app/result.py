"""What a run gives back: one flat row, the requests, the steps."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

import pandas as pd

from servesim.metrics.base import Value, e2e_s, tpot_s, ttft_s
from servesim.records import RequestRecord, RunRecord, StepRecord
from servesim.units import ps_to_seconds

_TIME_SUFFIX = "_ps"


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run.

    Attributes:
        summary: one flat row, column → value; units are in the names.
        notes: what the numbers rest on, one line each (capacity, cost, load).
        warnings: what makes them doubtful, one line each.
        record: the run in integer time.
    """

    summary: Mapping[str, Value]
    notes: Sequence[str]
    warnings: Sequence[str]
    record: RunRecord

    @property
    def requests(self) -> pd.DataFrame:
        """One row per request of the load, in seconds: the columns of requests.parquet."""
        frame = _seconds(self.record.requests, RequestRecord)
        for name, latency in (("ttft_s", ttft_s), ("tpot_s", tpot_s), ("e2e_s", e2e_s)):
            frame[name] = pd.Series(
                [latency(r) for r in self.record.requests], index=frame.index, dtype="float64"
            )
        return frame

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step, in seconds; empty unless `output.steps=true`."""
        return _seconds(self.record.steps, StepRecord)


def _seconds(records: Sequence[RequestRecord] | Sequence[StepRecord], kind: type) -> pd.DataFrame:
    """Records as a table, picosecond columns as float seconds."""
    names = [field.name for field in fields(kind)]
    frame = pd.DataFrame([asdict(record) for record in records], columns=names)
    for name in names:
        if name.endswith(_TIME_SUFFIX):
            values = [None if v is None else ps_to_seconds(v) for v in _column(records, name)]
            frame[name] = pd.Series(values, index=frame.index, dtype="float64")
    renamed = {n: n.removesuffix(_TIME_SUFFIX) + "_s" for n in names if n.endswith(_TIME_SUFFIX)}
    return frame.rename(columns=renamed)


def _column(records: Sequence[object], name: str) -> list[int | None]:
    return [getattr(record, name) for record in records]
