"""Traces of SGLang's scheduler: the requests, the settings, and what each step did (README.md)."""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servesim.errors import TraceError

RELEASE = "0.5.23"
EOS_TOKEN = 7


@dataclass(frozen=True, slots=True)
class Config:
    """Engine settings; names as in `servesim.scheduler.sglang.profile.SGLang` where it has them.

    Attributes:
        tokens: slots of the KV pool.
        max_model_len: longest context.
        chunked_prefill_size: -1 for no chunks.
        max_running_requests: in force, after the engine's own limits.
    """

    tokens: int
    max_model_len: int
    max_running_requests: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    schedule_policy: str
    schedule_conservativeness: float
    enable_mixed_chunk: bool
    disable_overlap_schedule: bool
    enable_priority_scheduling: bool
    page_size: int
    disable_radix_cache: bool
    radix_eviction_policy: str
    clip_max_new_tokens: int


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """A request; `arrive` is the step before which it is added.

    `reply` is what the model samples: it ends with EOS unless the cap cuts it off. A lower
    `priority` is more urgent.
    """

    arrive: int
    id: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    max_tokens: int
    priority: int


@dataclass(frozen=True, slots=True)
class Case:
    """What is run."""

    name: str
    config: Config
    requests: tuple[ScriptedRequest, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What one step did.

    Attributes:
        step: its number; steps without a batch have no row.
        batch: (request, tokens) in the engine's order.
        retracted: requests that lost their KV, in order.
        waiting: the queue after scheduling, as it stands.
        free: slots free after scheduling.
        evictable: cached tokens locked by nobody after scheduling.
        ratio: new_token_ratio after scheduling.
        finished: requests that ended with the step.
    """

    step: int
    batch: tuple[tuple[str, int], ...]
    retracted: tuple[str, ...]
    waiting: tuple[str, ...]
    free: int
    evictable: int
    ratio: float
    finished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A case, what an engine made of it, and what its pool held at the end."""

    case: Case
    rows: tuple[Row, ...]
    final_free: int
    final_evictable: int


def difference(recorded: Trace, made: Trace) -> str | None:
    """The first difference between two runs of a case, or None."""
    for theirs, ours in zip(recorded.rows, made.rows, strict=False):
        if theirs != ours:
            pairs = zip(asdict(theirs).items(), asdict(ours).values(), strict=True)
            told = [f"{name} {a} ≠ {b}" for (name, a), b in pairs if a != b]
            return f"step {theirs.step}: {'; '.join(told)}"
    for name in ("final_free", "final_evictable"):
        if getattr(recorded, name) != getattr(made, name):
            return f"{name} {getattr(recorded, name)} ≠ {getattr(made, name)}"
    if len(recorded.rows) != len(made.rows):
        return f"{len(recorded.rows)} rows ≠ {len(made.rows)}"
    return None


def write_traces(path: Path, traces: Sequence[Trace]) -> None:
    """Write a `.json.gz` file, the same bytes for the same traces."""
    items = [{"release": RELEASE, **asdict(trace)} for trace in traces]
    text = json.dumps(items, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_traces(path: Path) -> list[Trace]:
    """All traces of a file.

    Raises:
        TraceError: it is no such file.
    """
    try:
        items = json.loads(gzip.decompress(path.read_bytes()))
        if not isinstance(items, list) or not items:
            raise ValueError("expected a list of at least one trace")
        return [_parse(item) for item in items]
    except FileNotFoundError:
        raise TraceError(str(path), None, "no such file") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, zlib.error) as error:
        raise TraceError(str(path), None, f"not a file of SGLang traces ({error})") from None


def _parse(item: Mapping[str, Any]) -> Trace:
    if item["release"] != RELEASE:
        raise ValueError(f"release {item['release']}, not {RELEASE}")
    case = item["case"]
    requests = tuple(
        ScriptedRequest(**{**r, "prompt": tuple(r["prompt"]), "reply": tuple(r["reply"])})
        for r in case["requests"]
    )
    return Trace(
        Case(case["name"], Config(**case["config"]), requests),
        tuple(_row(row) for row in item["rows"]),
        item["final_free"],
        item["final_evictable"],
    )


def _row(row: Mapping[str, Any]) -> Row:
    batch = tuple((name, tokens) for name, tokens in row["batch"])
    lists = {name: tuple(row[name]) for name in ("retracted", "waiting", "finished")}
    return Row(**{**row, **lists, "batch": batch})
