"""timeline.json: a run as a Chrome trace, for https://ui.perfetto.dev or chrome://tracing.

Process "engine" has a slice per step, named by what the step carries, with the columns of
steps.parquet as arguments, an instant where requests were preempted, and counters, each of which
holds until its next event: requests in the batch and waiting, tokens by kind, KV blocks held.

Process "requests" has a slice per request, from the queue to its last token, with the columns of
requests.parquet as arguments, and in it the slices queued, prefill (from the first step that ran
it to its first token) and decode. What a preemption cost is within the phase in which it fell. A
request takes the lowest lane that is free, so there are as many lanes as requests were in the
engine at once. Rejected requests are instants; requests that had not arrived when the run was cut
are left out, and those it cut last until its end.

Times are microseconds, as the format wants, rounded to the nearest 1/8 µs. That is a grid on which
floats and their product with 1000 are exact: on one of nanoseconds, one boundary in a hundred is
off by one in a viewer that multiplies, and slices that meet seem to overlap. Both ends of a slice
are rounded, never its length, so slices that meet in the run meet here.

Format: "Trace Event Format" (Google, 2016), object form, events M, X, C and i.
"""

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from servesim.records import RequestRecord, RunRecord, StepRecord
from servesim.units import PS_PER_US

Event = dict[str, Any]


class _Track(NamedTuple):
    """A line of the viewer; thread numbers are distinct across processes, as they want it."""

    pid: int
    tid: int


_STEPS = _Track(1, 1)  # of process "engine"
_REJECTED = _Track(2, 2)  # of process "requests"
_FIRST_LANE = _Track(2, 3)
_GRID_PS = PS_PER_US // 8
# a slice has the times by itself
_STEP_COLUMNS, _REQUEST_COLUMNS = (
    tuple(field.name for field in fields(record) if not field.name.endswith("_ps"))
    for record in (StepRecord, RequestRecord)
)
_IDLE: dict[str, dict[str, int]] = {
    "requests": {"in batch": 0, "waiting": 0},
    "tokens per step": {"prefill": 0, "decode": 0},
    "KV blocks": {"used": 0},
}


def write_timeline(path: Path, record: RunRecord) -> None:
    """Write a run whose steps were kept; event by event, some 350 bytes per step.

    Raises:
        OSError: the system's reason why the file cannot be written.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for event in events(record):
            file.write(separator + json.dumps(event, separators=(",", ":")))
            separator = ",\n"
        file.write("\n]}\n")


def events(record: RunRecord) -> Iterator[Event]:
    """The trace events: those of the engine in order of time, then the requests as they queued."""
    yield _about_track(_STEPS, "process_name", name="engine")
    yield _about_track(_STEPS, "thread_name", name="steps")
    for step in record.steps:
        yield _step_slice(step)
        if step.num_preempted:
            preempted = {"num_preempted": step.num_preempted}
            yield _instant("preempted", step.start_ps, _STEPS, preempted)
    yield from _counters(record)
    yield _about_track(_REJECTED, "process_name", name="requests")
    yield from _rejections(record)
    yield from _request_slices(record)


def _step_slice(step: StepRecord) -> Event:
    span_ps = step.start_ps, step.start_ps + step.duration_ps
    return _slice(_kind(step), span_ps, _STEPS, _columns(step, _STEP_COLUMNS))


def _kind(step: StepRecord) -> str:
    if step.prefill_tokens:
        return "mixed" if step.decode_tokens else "prefill"
    return "decode" if step.decode_tokens else "empty"


def _counters(record: RunRecord) -> Iterator[Event]:
    """The series of each counter where they change; all are 0 while the engine is idle."""
    shown: dict[str, dict[str, int]] = {}
    end_ps = 0
    for step in record.steps:
        if step.start_ps > end_ps:
            yield from _changes(shown, _IDLE, end_ps)
        now = {
            "requests": {"in batch": step.num_seqs, "waiting": step.num_waiting},
            "tokens per step": {"prefill": step.prefill_tokens, "decode": step.decode_tokens},
            "KV blocks": {"used": step.kv_blocks_used},
        }
        yield from _changes(shown, now, step.start_ps)
        end_ps = step.start_ps + step.duration_ps
    if end_ps >= record.end_ps:  # else the run was cut, with a step under way
        yield from _changes(shown, _IDLE, end_ps)


def _changes(
    shown: dict[str, dict[str, int]], now: Mapping[str, dict[str, int]], now_ps: int
) -> Iterator[Event]:
    for name, series in now.items():
        if shown.get(name) != series:
            shown[name] = series
            yield {**_event("C", name, now_ps, _STEPS), "args": series}


def _rejections(record: RunRecord) -> Iterator[Event]:
    rejected = [request for request in record.requests if request.status == "rejected"]
    if rejected:
        yield _about_track(_REJECTED, "thread_name", name="rejected")
    for request in sorted(rejected, key=lambda request: (request.arrival_ps, request.rid)):
        about = {"rid": request.rid, "reason": request.reason}
        yield _instant("rejected", request.arrival_ps, _REJECTED, about)


def _request_slices(record: RunRecord) -> Iterator[Event]:
    queued = [(r.queued_ps, r.rid, r) for r in record.requests if r.queued_ps is not None]
    lanes = _Lanes()
    for start_ps, rid, request in sorted(queued, key=lambda entry: entry[:2]):
        end_ps = _end_ps(request, record.end_ps)
        lane, is_new = lanes.take(start_ps, end_ps)
        track = _FIRST_LANE._replace(tid=_FIRST_LANE.tid + lane)
        if is_new:
            yield _about_track(track, "thread_name", name=f"lane {lane}")
            yield _about_track(track, "thread_sort_index", sort_index=lane)
        yield _slice(
            f"request {rid}", (start_ps, end_ps), track, _columns(request, _REQUEST_COLUMNS)
        )
        for name, span in _phases(request, end_ps):
            yield _slice(name, span, track, {"rid": rid})


class _Lanes:
    """Tracks that requests take one after the other."""

    def __init__(self) -> None:
        self._free: list[int] = []  # heaps
        self._busy: list[tuple[int, int]] = []  # (end, lane)
        self._count = 0

    def take(self, start_ps: int, end_ps: int) -> tuple[int, bool]:
        """(lowest lane that is free at `start_ps`, whether it is new); call in order of start."""
        while self._busy and self._busy[0][0] <= start_ps:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        is_new = not self._free
        if is_new:
            lane, self._count = self._count, self._count + 1
        else:
            lane = heapq.heappop(self._free)
        heapq.heappush(self._busy, (end_ps, lane))
        return lane, is_new


def _end_ps(request: RequestRecord, run_end_ps: int) -> int:
    if request.status == "finished" and request.last_token_ps is not None:
        return request.last_token_ps
    return run_end_ps


def _phases(request: RequestRecord, end_ps: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """(name, (start, end)) of what the request went through, but for what took no time."""
    starts = (
        ("queued", request.queued_ps),
        ("prefill", request.scheduled_ps),
        ("decode", request.first_token_ps),
    )
    reached = [(name, start_ps) for name, start_ps in starts if start_ps is not None]
    ends = [*(start_ps for _, start_ps in reached[1:]), end_ps]
    for (name, start_ps), phase_end_ps in zip(reached, ends, strict=True):
        if start_ps < phase_end_ps:
            yield name, (start_ps, phase_end_ps)


def _columns(record: StepRecord | RequestRecord, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _slice(name: str, span_ps: tuple[int, int], track: _Track, args: Mapping[str, Any]) -> Event:
    start_us, end_us = map(_us, span_ps)
    event = _event("X", name, span_ps[0], track)
    return {**event, "dur": end_us - start_us, "args": args}


def _instant(name: str, now_ps: int, track: _Track, args: Mapping[str, Any]) -> Event:
    return {**_event("i", name, now_ps, track), "s": "t", "args": args}


def _about_track(track: _Track, what: str, **args: str | int) -> Event:
    return {**_event("M", what, 0, track), "args": args}


def _event(ph: str, name: str, now_ps: int, track: _Track) -> Event:
    return {"name": name, "ph": ph, "ts": _us(now_ps), "pid": track.pid, "tid": track.tid}


def _us(ps: int) -> float:
    """Microseconds, on the grid; a half goes up, so order is kept."""
    return (ps + _GRID_PS // 2) // _GRID_PS / 8
