"""What a set of traces went through: settings by trace, events by request and step."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from validation.conformance.record import MAX_STEPS
from validation.conformance.trace import EOS_TOKEN, Trace

_SETTINGS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "synchronous": lambda c: not c.get("asyn"),
    "asynchronous": lambda c: bool(c.get("asyn")),
    "fcfs": lambda c: c["policy"] == "fcfs",
    "priority": lambda c: c["policy"] == "priority",
    "prefix caching": lambda c: c["caching"],
    "no prefix caching": lambda c: not c["caching"],
    "block size 4": lambda c: c["bs"] == 4,
    "block size 8": lambda c: c["bs"] == 8,
    "block size 16": lambda c: c["bs"] == 16,
    "long-prefill threshold": lambda c: c["thr"] > 0,
    "chunked prefill off": lambda c: not c["chunked"],
    "2 drafts": lambda c: c["K"] == 2,
    "4 drafts": lambda c: c["K"] == 4,
    "lookahead slots": lambda c: c["la"] > 0,
    "last-block drop": lambda c: bool(c.get("eagle_drop")),
    "full-sequence gate": lambda c: c["full"],
    "no full-sequence gate": lambda c: not c["full"],
    "watermark": lambda c: c["wm"] > 0,
}
EVENTS = (
    "steps",
    "asynchronous steps",
    "speculative steps",
    "preemptions",
    "hit tokens",
    "aborts",
    "ends by EOS",
    "ends by length",
    "endless",
)


def settings(traces: Iterable[Trace]) -> dict[str, int]:
    """How many of the traces have each setting, all of them named."""
    count = Counter(dict.fromkeys(_SETTINGS, 0))
    for trace in traces:
        count.update(name for name, holds in _SETTINGS.items() if holds(trace.config))
    return dict(count)


def events(traces: Iterable[Trace]) -> dict[str, int]:
    """How often each of EVENTS happened, as the rows say."""
    count = Counter(dict.fromkeys(EVENTS, 0))
    for trace in traces:
        count.update(_events_of(trace))
    return dict(count)


def _events_of(trace: Trace) -> dict[str, int]:
    rows = trace.rows
    ended = {request_id for row in rows for request_id in row.get("finished", ())}
    by_eos = sum(_reaches_eos(trace, rows, request_id) for request_id in ended)
    given_up = [r for r in trace.requests if r.abort_step is not None and r.id not in ended]
    return {
        "steps": len(rows),
        "asynchronous steps": len(rows) if trace.config.get("asyn") else 0,
        "speculative steps": sum(bool(row.get("drafts")) for row in rows),
        "preemptions": sum(len(row.get("preempted", ())) for row in rows),
        "hit tokens": (trace.prefix_stats or {}).get("hits", 0),
        "aborts": len(given_up),
        "ends by EOS": by_eos,
        "ends by length": len(ended) - by_eos,
        "endless": rows[-1]["step"] == MAX_STEPS - 1,
    }


def _reaches_eos(trace: Trace, rows: Iterable[Mapping[str, Any]], request_id: str) -> bool:
    script = trace.outputs.get(request_id, [])
    if EOS_TOKEN not in script:
        return False
    streamed: int = sum(row.get("emitted", {}).get(request_id, 0) for row in rows)
    return streamed > script.index(EOS_TOKEN)
