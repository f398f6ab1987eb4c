"""Time stamps as whole nanoseconds on one clock, and the refusal of columns that hold two.

A trace must say its unit and its origin, since neither can be guessed: a column that mixes epoch
and relative times reads without complaint and simulates nonsense (inference-sim#1606).
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servesim import checks
from servesim.errors import SettingError
from servesim.workload.trace import fields
from servesim.workload.trace.table import Table

Ints = NDArray[np.int64]

NS_PER_UNIT = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
UNITS = (*NS_PER_UNIT, "iso8601")
ORIGINS = ("epoch", "monotonic", "zero")

# Years 2000 and 2100: epoch stamps lie between, and no uptime or trace lasts thirty years.
FIRST_EPOCH_S = 946_684_800
LAST_EPOCH_S = 4_102_444_800

_HAS_OFFSET = re.compile(r"\d\d:\d\d.*([Zz]|[+-]\d\d(:?\d\d)?)$")


@dataclass(frozen=True, slots=True)
class Clock:
    """What a column of time stamps counts.

    Attributes:
        unit: s, ms, us, ns, or iso8601 (date and time in text).
        origin: `epoch` (since 1970), `monotonic` (since some start of a machine; like epoch, the
            first request used comes at 0), or `zero` (since the start of the trace; a first
            stamp of 2 s means that nothing comes for 2 s).
    """

    unit: str
    origin: str

    def __post_init__(self) -> None:
        checks.choice("unit", self.unit, UNITS)
        checks.choice("origin", self.origin, ORIGINS)
        if self.unit == "iso8601" and self.origin != "epoch":
            raise SettingError("origin", self.origin, "dates have the origin 'epoch'")

    def arrivals(self, table: Table, column: str, max_gap_s: float) -> Ints:
        """The column in nanoseconds, in ascending order and without a suspicious gap."""
        times_ns = self.nanoseconds(table, column)
        _check_order(table, column, times_ns)
        _check_gaps(table, column, times_ns, max_gap_s)
        return times_ns

    def nanoseconds(self, table: Table, column: str) -> Ints:
        """The column in whole nanoseconds since the origin.

        A float of epoch seconds resolves 0.2 µs; differences are taken before scaling, so
        nothing more is lost.
        """
        if self.unit == "iso8601":
            return _from_dates(table, column)
        found, scale = fields.numbers(table, column), NS_PER_UNIT[self.unit]
        self._check_range(table, column, found.astype(np.float64) * (scale / 1e9))
        base = int(found.min())
        since = (found - base) * scale
        whole = since if since.dtype == np.int64 else np.rint(since)
        return np.asarray(whole, dtype=np.int64) + base * scale

    def _check_range(self, table: Table, column: str, seconds: NDArray[np.float64]) -> None:
        is_epoch = self.origin == "epoch"
        low, high = (FIRST_EPOCH_S, LAST_EPOCH_S) if is_epoch else (0, FIRST_EPOCH_S)
        bad = np.flatnonzero((seconds < low) | (seconds >= high))
        if not bad.size:
            return
        row = int(bad[0])
        value = table.columns[column][row]
        if seconds[row] < 0:
            raise table.error(row, f"{column}={value} is negative")
        span = "between the years 2000 and 2100" if is_epoch else "of less than 30 years"
        reason = f"is no time {span} for unit={self.unit}, origin={self.origin}"
        raise table.error(row, f"{column}={value} {reason}: another clock, unit or origin?")


def _from_dates(table: Table, column: str) -> Ints:
    texts = fields.dates(table, column)
    stamps = pd.Series(
        pd.to_datetime(pd.Series(texts), format="ISO8601", utc=True, errors="coerce")
    )
    first = pd.Timestamp(FIRST_EPOCH_S, unit="s", tz="UTC")
    last = pd.Timestamp(LAST_EPOCH_S, unit="s", tz="UTC")
    bad = np.flatnonzero(~((stamps >= first) & (stamps < last)).to_numpy())
    if bad.size:
        row = int(bad[0])
        reason = "is not an ISO 8601 time between the years 2000 and 2100"
        raise table.error(row, f"{column}={texts[row]!r} {reason}")
    zoned = [_HAS_OFFSET.search(text) is not None for text in texts]
    if any(zoned) and not all(zoned):
        row = zoned.index(not zoned[0])
        reason = f"{'has' if zoned[row] else 'lacks'} a UTC offset, unlike the rows before"
        raise table.error(row, f"{column}={texts[row]!r} {reason}")
    return np.asarray(stamps.dt.as_unit("ns").astype("int64"), dtype=np.int64)


def _check_order(table: Table, column: str, times_ns: Ints) -> None:
    """Refuse a row that comes earlier than the one before it."""
    bad = np.flatnonzero(np.diff(times_ns) < 0)
    if bad.size:
        row = int(bad[0]) + 1
        was, now = (table.columns[column][i] for i in (row - 1, row))
        reason = f"is {(times_ns[row - 1] - times_ns[row]) / 1e9:g} s before the row above ({was})"
        raise table.error(row, f"{column}={now} {reason}: sort the trace, or are there two clocks?")


def _check_gaps(table: Table, column: str, times_ns: Ints, max_gap_s: float) -> None:
    """Refuse a gap that is more likely a second clock than a lull; times are ascending."""
    gaps_s = np.diff(times_ns) / 1e9
    bad = np.flatnonzero(gaps_s > max_gap_s)
    if bad.size:
        row = int(bad[0]) + 1
        now = table.columns[column][row]
        reason = f"jumps by {gaps_s[row - 1]:g} s, more than max_gap_s={max_gap_s:g}"
        raise table.error(row, f"{column}={now} {reason}: two clocks or units in one column?")
