"""Recorded runs of transformers continuous batching: what was asked, what each step did.

A file is a gzip-compressed JSON object: `release` and `traces`, a list of runs in the form that
`Trace.as_json` gives them.
"""

import gzip
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from servesim.errors import TraceError

RELEASE = "5.23.0"
EOS_TOKEN = 0
_FIRST_TOKEN, _STREAM_LENGTH = 10, 10_000


@dataclass(frozen=True, slots=True)
class Config:
    """Engine settings under transformers' names; `num_pages` is what its cache holds."""

    scheduler_type: str
    page_size: int
    num_pages: int
    max_batch_tokens: int
    max_requests_per_batch: int
    max_blocks_per_request: int
    safety_margin: float | None
    allow_block_sharing: bool


class Scripted(NamedTuple):
    """A request of a run.

    Attributes:
        arrive: step before which it is added.
        prompt: prompt tokens.
        output: reply tokens; it ends with an EOS if that is less than `max_tokens`.
        max_tokens: cap on the reply.
        shared: (stream, tokens) of the leading tokens, which run on into the reply; two requests
            have equal tokens as long as they take equal numbers from equal streams.
    """

    arrive: int
    prompt: int
    output: int
    max_tokens: int
    shared: tuple[tuple[int, int], ...]

    def tokens(self, rid: int) -> list[int]:
        """Prompt and reply; what is not shared comes from a stream of the request's own."""
        own = (1000 + rid, self.prompt + self.output)
        ids: list[int] = []
        for stream, count in (*self.shared, own):
            first = _FIRST_TOKEN + stream * _STREAM_LENGTH
            ids.extend(range(first, first + count))
        del ids[self.prompt + self.output :]
        if self.output < self.max_tokens:
            ids[-1] = EOS_TOKEN
        return ids

    @property
    def num_shared(self) -> int:
        """Leading tokens that others may have."""
        return sum(count for _, count in self.shared)


class Row(NamedTuple):
    """One step; requests by number.

    Attributes:
        step: its number.
        batch: (request, tokens, tokens computed before), in the engine's order.
        preempted: requests that lost their pages, in the order in which they did.
        active: active requests after scheduling, in the engine's order.
        waiting: waiting ones, in the order of the queue.
        free: free pages after scheduling.
        cached: pages kept for their content alone, after scheduling.
        finished: requests that ended with the step, by number.
        free_after: free pages once they have given theirs back.
        cached_after: cached ones then.
    """

    step: int
    batch: tuple[tuple[int, int, int], ...]
    preempted: tuple[int, ...]
    active: tuple[int, ...]
    waiting: tuple[int, ...]
    free: int
    cached: int
    finished: tuple[int, ...]
    free_after: int
    cached_after: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One run: the settings, the requests in order of arrival, a row per step."""

    name: str
    config: Config
    requests: tuple[Scripted, ...]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """The run in a file; rows in the order of their fields."""
        return {
            "name": self.name,
            "config": asdict(self.config),
            "requests": self.requests,
            "rows": self.rows,
        }


def write(path: Path, traces: list[Trace]) -> None:
    """All runs as one file, the same bytes for the same runs."""
    content = {"release": RELEASE, "traces": [trace.as_json() for trace in traces]}
    text = json.dumps(content, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(path: Path) -> list[Trace]:
    """The runs of a file.

    Raises:
        TraceError: naming the file and what is wrong with it.
    """
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["release"] != RELEASE:
            reason = f"is of transformers {content['release']}, not {RELEASE}"
            raise TraceError(str(path), None, reason)
        return [_trace(item) for item in content["traces"]]
    except KeyError as error:
        raise TraceError(str(path), None, f"lacks {error}") from None
    except (OSError, EOFError, ValueError, TypeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(str(path), None, f"is no file of recorded runs ({error})") from None


def _trace(item: Any) -> Trace:
    return Trace(
        item["name"],
        Config(**item["config"]),
        tuple(Scripted(*map(_frozen, r)) for r in item["requests"]),
        tuple(Row(*map(_frozen, row)) for row in item["rows"]),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
