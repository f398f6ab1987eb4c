"""Trace files of real schedulers: reading and checking (schema in README.md)."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servesim.errors import TraceError

EOS_TOKEN = 7
FIRST_UNSCRIPTED_TOKEN = 100
_SUFFIXES = (".json", ".json.gz")
_CONFIG_KEYS = (
    "nblocks",
    "bs",
    "max_tok",
    "max_seqs",
    "max_len",
    "policy",
    "caching",
    "thr",
    "chunked",
    "K",
    "la",
    "full",
    "wm",
)


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """A request of a trace.

    Attributes:
        arrive: step before which it is added.
        id: unique in the trace.
        prompt: token ids.
        max_tokens: cap on the reply.
        priority: lower is more urgent.
        abort_step: step before which it is given up, or None.
    """

    arrive: int
    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int
    abort_step: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded run.

    Attributes:
        name: of the run.
        release: engine release, e.g. "0.33".
        config: engine settings under the schema's short names (`asyn` and `eagle_drop` may lack).
        requests: in the order in which they were added.
        outputs: sampled tokens by request, in order.
        accepted: accepted drafts of each verification by request, in order.
        rows: what each step did.
        final_free_queue: block ids at the end, head first.
        prefix_stats: {"queries", "hits"} in tokens, or None where not recorded.
    """

    name: str
    release: str
    config: Mapping[str, Any]
    requests: tuple[ScriptedRequest, ...]
    rows: tuple[Mapping[str, Any], ...]
    final_free_queue: tuple[int, ...] | None
    outputs: Mapping[str, list[int]] = field(default_factory=dict)
    accepted: Mapping[str, list[int]] = field(default_factory=dict)
    prefix_stats: Mapping[str, int] | None = None

    def reply(self, request: ScriptedRequest) -> list[int]:
        """The tokens that are sampled for the request one after another, up to its cap."""
        scripted = self.outputs.get(request.id, [])[: request.max_tokens]
        rest = range(len(scripted), request.max_tokens)
        return [*scripted, *(FIRST_UNSCRIPTED_TOKEN + i for i in rest)]


def read_traces(path: Path) -> list[Trace]:
    """All traces of a `.json` or `.json.gz` file.

    Raises:
        TraceError: naming the file, the trace and what is wrong with it.
    """
    if not path.name.endswith(_SUFFIXES):
        raise TraceError(str(path), None, f"expected a name that ends in {' or '.join(_SUFFIXES)}")
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        items = json.loads(text)
    except FileNotFoundError:
        raise TraceError(str(path), None, "no such file") from None
    except IsADirectoryError:
        raise TraceError(str(path), None, "is a directory, not a trace file") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TraceError(str(path), None, f"not a JSON trace file ({error})") from None
    if not isinstance(items, list) or not items:
        raise TraceError(str(path), None, "expected a list of at least one trace")
    return [_parse(str(path), position, item) for position, item in enumerate(items)]


def _parse(path: str, position: int, item: Any) -> Trace:
    name = item.get("name", "") if isinstance(item, dict) else ""
    try:
        _check(item)
        return Trace(
            name=item["name"],
            release=item["release"],
            config=item["config"],
            requests=tuple(
                ScriptedRequest(
                    r["arrive"],
                    r["id"],
                    tuple(r["prompt"]),
                    r["max_tokens"],
                    r["priority"],
                    r.get("abort_step"),
                )
                for r in item["requests"]
            ),
            rows=tuple(item["rows"]),
            final_free_queue=tuple(item["final_free_queue"])
            if item.get("final_free_queue") is not None
            else None,
            outputs=item.get("outputs") or {},
            accepted=item.get("accepted") or {},
            prefix_stats=item.get("prefix_stats"),
        )
    except KeyError as error:
        raise TraceError(path, None, f"trace {position} '{name}' lacks {error}") from None
    except (TypeError, AttributeError, ValueError) as error:
        reason = f"trace {position} '{name}' is malformed ({error})"
        raise TraceError(path, None, reason) from None


def _check(item: Any) -> None:
    """Refuse a trace that a replay would stumble over, or that would compare nothing."""
    for key in _CONFIG_KEYS:
        if key not in item["config"]:
            raise KeyError(f"config.{key}")
    requests, rows = item["requests"], item["rows"]
    if len({request["id"] for request in requests}) < len(requests):
        raise ValueError("two requests have one id")
    if any(not isinstance(r[key], int) for r in requests for key in ("arrive", "max_tokens")):
        raise ValueError("arrive and max_tokens must be whole numbers")
    aborted = [r for r in requests if r.get("abort_step") is not None]
    if any(not isinstance(r["abort_step"], int) or r["abort_step"] < r["arrive"] for r in aborted):
        raise ValueError("abort_step must be null or a whole number, arrive or later")
    steps = [row["step"] for row in rows]
    if not steps:
        raise ValueError("no rows, so nothing to compare")
    if any(not isinstance(step, int) for step in steps) or steps != sorted(set(steps)):
        raise ValueError("rows must have ascending whole step numbers")
    if any(not isinstance(row.get("sched", {}), dict) for row in rows):
        raise ValueError("sched must map requests to tokens")
