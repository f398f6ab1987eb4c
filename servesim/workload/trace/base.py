"""From the rows of a trace to the requests of a run: which rows, how fast, how urgent."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servesim import checks
from servesim.content import Content, Unique
from servesim.errors import SettingError
from servesim.records import Request
from servesim.units import PS_PER_NS
from servesim.workload import priorities, rate
from servesim.workload.base import Load

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A trace as read: one entry per request, checked, ascending in time.

    Attributes:
        times_ns: whole nanoseconds since the origin of the trace's clock.
        prompt_tokens: prompt lengths.
        output_tokens: reply lengths.
        starts_at_zero: whether the clock counts from the start of the trace.
        max_tokens: cap of each request, or None.
        priority: priority of each request, or None.
        names: id of each request, or None.
        tenants: sender of each request, or None.
        contents: content of each request, or None.
        notes: what the reader has to say.
        counts: what the reader counted.
    """

    times_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    starts_at_zero: bool
    max_tokens: Ints | None = None
    priority: Ints | None = None
    names: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    contents: Sequence[Content] | None = None
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(ABC):
    """Settings that every reader of a trace has; a reader adds its own and `read`.

    The whole file is read and checked, whichever rows are used. Rows are never dropped, thinned
    or repeated.

    Attributes:
        path: the file, relative to the working directory.
        rate_rps: null keeps the trace's own intervals; a number stretches all of them by one
            factor, so that (requests − 1) / (last − first arrival) is this rate; inf sends all
            at time 0.
        offset: rows left out at the start.
        limit: greatest number of rows used after these, or null.
        max_tokens: the cap every request sends along, or null: each sends its own reply's length.
        priorities: {priority: share} drawn per row, or null for what the trace has, else 0.
        max_gap_s: a longer gap between two rows is refused as a sign of two clocks.
    """

    path: str
    rate_rps: float | None = None
    offset: int = 0
    limit: int | None = None
    max_tokens: int | None = None
    priorities: Mapping[int, float] | None = field(default=None, hash=False)
    max_gap_s: float = 86_400.0

    def __post_init__(self) -> None:
        checks.text("path", str(self.path) if isinstance(self.path, Path) else self.path)
        if self.rate_rps is not None:
            rate.check(self.rate_rps)
        checks.whole("offset", self.offset)
        if self.limit is not None:
            checks.whole("limit", self.limit, at_least=1)
        if self.max_tokens is not None:
            checks.whole("max_tokens", self.max_tokens, at_least=1)
        checks.positive("max_gap_s", self.max_gap_s)
        object.__setattr__(self, "priorities", priorities.checked_shares(self.priorities))

    @abstractmethod
    def read(self) -> Rows:
        """All rows of the file, or an error that names the line."""

    def load(self, seed: int) -> Load:
        """The chosen rows as requests; the seed matters only for drawn priorities."""
        rows = self.read()
        self._check_columns(rows)
        total = len(rows.times_ns)
        if self.offset >= total:
            raise SettingError("offset", self.offset, f"the trace has {total} rows")
        last = total if self.limit is None else min(total, self.offset + self.limit)
        used = slice(self.offset, last)
        times_ns, stretched = self._times(rows, used)
        requests = _requests(rows, used, times_ns, self._caps(rows), self._urgency(rows, seed))
        notes = [f"{last - self.offset} of {total} rows of {self.path}", *rows.notes, *stretched]
        counts = dict(rows.counts) | {"trace_rows": total}
        warnings = []
        num_duplicates = _duplicates(requests, rows.times_ns[used])
        if num_duplicates:
            counts["duplicate_rows"] = num_duplicates
            warnings.append(f"{num_duplicates} rows repeat an earlier one (all are kept)")
        return Load(requests, tuple(notes), counts, tuple(warnings))

    def _times(self, rows: Rows, used: slice) -> tuple[Ints, list[str]]:
        """Arrivals in nanoseconds from the start of the run, and what was done to them.

        Time 0 is the first row used; on a clock that counts from the trace's start it is that
        start, or the last row left out.
        """
        times = rows.times_ns[used]
        if rows.starts_at_zero:
            start = rows.times_ns[self.offset - 1] if self.offset else np.int64(0)
        else:
            start = times[0]
        times = times - start
        span_s = int(times[-1] - times[0]) / 1e9
        own_rps = (len(times) - 1) / span_s if span_s else math.inf
        if self.rate_rps is None:
            return times, [f"arrivals as in the trace, {own_rps:.4g} requests/s"]
        if self.rate_rps == math.inf:
            return np.zeros_like(times), ["all requests are sent at time 0 (rate_rps=inf)"]
        if own_rps == math.inf:
            reason = "the rows used all come at one time, so there is no interval to stretch"
            raise SettingError("rate_rps", self.rate_rps, f"{reason}; null keeps them so")
        factor = own_rps / self.rate_rps
        note = f"intervals × {factor:.6g}: {own_rps:.4g} → {self.rate_rps:g} requests/s"
        return np.rint(times * factor).astype(np.int64), [note]

    def _check_columns(self, rows: Rows) -> None:
        """Refuse a setting that the trace has a column for."""
        for name, in_trace in (("max_tokens", rows.max_tokens), ("priorities", rows.priority)):
            if in_trace is not None and getattr(self, name) is not None:
                raise SettingError(name, getattr(self, name), "the trace has a column for it")

    def _caps(self, rows: Rows) -> Ints:
        if self.max_tokens is not None:
            return np.full(len(rows.times_ns), self.max_tokens)
        return rows.output_tokens if rows.max_tokens is None else rows.max_tokens

    def _urgency(self, rows: Rows, seed: int) -> list[int]:
        """Priorities of all rows, so that offset and limit change no row's."""
        if rows.priority is not None:
            return [int(p) for p in rows.priority]
        return priorities.draw(self.priorities, len(rows.times_ns), seed)


def _requests(
    rows: Rows, used: slice, times_ns: Ints, caps: Ints, urgency: list[int]
) -> tuple[Request, ...]:
    num_used = len(times_ns)
    columns = zip(
        times_ns.tolist(),
        rows.prompt_tokens[used].tolist(),
        rows.output_tokens[used].tolist(),
        caps[used].tolist(),
        urgency[used],
        [Unique()] * num_used if rows.contents is None else rows.contents[used],
        [""] * num_used if rows.names is None else rows.names[used],
        [""] * num_used if rows.tenants is None else rows.tenants[used],
        strict=True,
    )
    return tuple(
        Request(rid, time_ns * PS_PER_NS, *others) for rid, (time_ns, *others) in enumerate(columns)
    )


def _duplicates(requests: Sequence[Request], times_ns: Ints) -> int:
    """Rows equal to an earlier one, by the trace's own time."""
    # The same time is rare and cheap to look for, so the rest is compared for few rows.
    alike = np.flatnonzero(pd.Series(times_ns).duplicated(keep=False).to_numpy())
    rows = [(int(times_ns[i]), requests[i]) for i in alike.tolist()]
    keys = {(t, r.prompt_tokens, r.output_tokens, r.name, r.tenant, r.content) for t, r in rows}
    return len(rows) - len(keys)
