"""Sessions of turns from a file: conversations and agents, who wait for each reply.

A session's next prompt repeats what came before and goes on, so it begins with tokens that its
previous turn's prompt and reply begin with, too: as many as the file says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servesim import checks
from servesim.content import Inherited
from servesim.errors import SettingError
from servesim.records import Request
from servesim.units import seconds_to_ps
from servesim.workload import priorities, rate
from servesim.workload.base import Load
from servesim.workload.release import Turns
from servesim.workload.trace import fields, table
from servesim.workload.trace.table import Table

COLUMNS = (
    *("session", "turn", "start_s", "gap_s"),
    *("prompt_tokens", "output_tokens", "shared_prefix_tokens"),
)
_LONGEST_S = 1e9  # thirty years; a longer time is a slip, or another unit

Floats = NDArray[np.float64]


class _Turn(NamedTuple):
    """A row of the file, and its place there."""

    row: int
    session: str
    number: int
    start_s: float
    gap_s: float
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Turns of sessions; columns as in `COLUMNS`, described in conf/workload/sessions.yaml.

    A turn's latencies count from its sending: the end of the previous turn, refused or not, and
    the gap. Until it is sent its arrival is given as its session's start. A request's tenant is its
    session, its name `session:turn`.

    Attributes:
        path: the file, relative to the working directory.
        file_format: csv, jsonl or parquet; null goes by the suffix.
        concurrency: most sessions at a time, or null. The next one, in order of starts, begins
            when one has ended, not before its own start.
        rate_rps: null keeps the starts; a number stretches them by one factor, so that sessions
            start at this rate; inf starts all at time 0. Gaps stay as they are.
        limit: greatest number of sessions used, in order of their starts, or null.
        max_tokens: the cap every request sends along, or null: each sends its own reply's length.
        priorities: {priority: share} drawn per turn, or null for 0 throughout.
    """

    path: str
    file_format: str | None = None
    concurrency: int | None = None
    rate_rps: float | None = None
    limit: int | None = None
    max_tokens: int | None = None
    priorities: Mapping[int, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        checks.text("path", str(self.path) if isinstance(self.path, Path) else self.path)
        if self.rate_rps is not None:
            rate.check(self.rate_rps)
        for name in ("concurrency", "limit", "max_tokens"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), at_least=1)
        object.__setattr__(self, "priorities", priorities.checked_shares(self.priorities))

    def load(self, seed: int) -> Load:
        """The chosen sessions as requests; the seed matters only for drawn priorities."""
        raw = table.read(self.path, COLUMNS, self.file_format)
        sessions = sorted(_sessions(raw), key=lambda turns: turns[0].start_s)
        used = sessions[: self.limit]
        starts_ps, stretched = self._starts([turns[0].start_s for turns in used])
        urgency = priorities.draw(self.priorities, len(raw), seed)
        requests: list[Request] = []
        for start_ps, turns in zip(starts_ps, used, strict=True):
            requests += self._requests(turns, len(requests), start_ps, urgency)
        gaps = (_gaps_ps(turns) for turns in used)
        limited = f", at most {self.concurrency} at a time" if self.concurrency else ""
        note = f"{len(used)} of {len(sessions)} sessions of {self.path}, {len(requests)} turns"
        counts = {"sessions": len(used)}
        if self.concurrency:
            counts["concurrency"] = self.concurrency
        return Load(
            tuple(requests),
            (f"{note}{limited}; a turn's latencies count from its sending", stretched),
            counts,
            release=Turns(tuple(gap for of in gaps for gap in of), self.concurrency),
        )

    def _starts(self, starts_s: Sequence[float]) -> tuple[list[int], str]:
        """Starts of the sessions, ascending, in picoseconds; what was done to them."""
        since_s = np.asarray(starts_s)
        span_s = float(since_s[-1] - since_s[0])
        own = f"{(len(since_s) - 1) / span_s:.4g} sessions/s" if span_s else "all at one time"
        if self.rate_rps is None:
            note = f"sessions start as in the file, {own}"
        elif self.rate_rps == float("inf"):
            since_s, note = np.zeros_like(since_s), "all sessions start at time 0 (rate_rps=inf)"
        elif not span_s:
            reason = "the sessions used all start at one time, so there is nothing to stretch"
            raise SettingError("rate_rps", self.rate_rps, f"{reason}; null keeps them so")
        else:
            since_s = since_s * ((len(since_s) - 1) / span_s / self.rate_rps)
            note = f"starts stretched: {own} → {self.rate_rps:g}"
        return [seconds_to_ps(since) for since in since_s.tolist()], note

    def _requests(
        self, turns: Sequence[_Turn], first_rid: int, start_ps: int, urgency: Sequence[int]
    ) -> list[Request]:
        requests, content = [], None
        for rid, turn in enumerate(turns, start=first_rid):
            following = turns[rid - first_rid + 1 : rid - first_rid + 2]
            passed_on = following[0].shared_tokens if following else 0
            content = Inherited.of(content, rid, turn.shared_tokens, passed_on)
            requests.append(
                Request(
                    rid,
                    start_ps,
                    turn.prompt_tokens,
                    turn.output_tokens,
                    self.max_tokens or turn.output_tokens,
                    urgency[turn.row],
                    content,
                    name=f"{turn.session}:{turn.number}",
                    tenant=turn.session,
                )
            )
        return requests


def _gaps_ps(turns: Sequence[_Turn]) -> list[int | None]:
    return [None, *(seconds_to_ps(turn.gap_s) for turn in turns[1:])]


def _sessions(raw: Table) -> list[list[_Turn]]:
    """The rows by session, sessions in order of first appearance, turns checked."""
    sessions: dict[str, list[_Turn]] = {}
    for turn in _turns(raw):
        earlier = sessions.setdefault(turn.session, [])
        previous = earlier[-1] if earlier else None
        if previous is not None and turn.number != previous.number + 1:
            reason = f"follows turn {previous.number} of session {turn.session!r}"
            raise raw.error(
                turn.row, f"turn={turn.number} {reason}; a session's turns must count up"
            )
        _check_shared(raw, turn, previous)
        earlier.append(turn)
    return list(sessions.values())


def _turns(raw: Table) -> list[_Turn]:
    columns = zip(
        fields.texts(raw, "session"),
        fields.whole(raw, "turn", at_least=0).tolist(),
        _seconds(raw, "start_s"),
        _seconds(raw, "gap_s"),
        fields.whole(raw, "prompt_tokens", at_least=1).tolist(),
        fields.whole(raw, "output_tokens", at_least=1).tolist(),
        fields.whole(raw, "shared_prefix_tokens", at_least=0).tolist(),
        strict=True,
    )
    return [_Turn(row, *values) for row, values in enumerate(columns)]


def _seconds(raw: Table, column: str) -> list[float]:
    found = fields.numbers(raw, column).astype(np.float64)
    for wrong, reason in ((found < 0, "is negative"), (found > _LONGEST_S, "is over 30 years")):
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[0])
            raise raw.error(row, f"{column}={found[row]:.12g} {reason}")
    seconds: list[float] = found.tolist()
    return seconds


def _check_shared(raw: Table, turn: _Turn, previous: _Turn | None) -> None:
    """A prompt has no more in common with the previous turn than either has."""
    before = previous.prompt_tokens + previous.output_tokens if previous else 0
    most = min(turn.prompt_tokens, before)
    if turn.shared_tokens > most:
        why = f"the previous turn has {before} tokens" if previous else "it is a first turn"
        reason = f"must be {most} or less: the prompt has {turn.prompt_tokens}, {why}"
        raise raw.error(turn.row, f"shared_prefix_tokens={turn.shared_tokens} {reason}")
