"""When requests are sent whose clients wait for replies: closed loops, turns of sessions.

An open loop knows all its sending times beforehand and has no release. A release is a value of
the load; `begin` gives what one run remembers of it. It knows the clients' clock only: what lies
between client and engine is the front end's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from servesim.records import Request


class Sending(NamedTuple):
    """A request that its client sends, and when."""

    rid: int
    sent_ps: int


class Clients(Protocol):
    """The clients of one run. A request is sent once, and its end is told once."""

    def first(self) -> list[Sending]:
        """What is sent without waiting for a reply."""

    def after(self, rids: Sequence[int], seen_ps: int) -> list[Sending]:
        """What is sent because the clients of `rids` saw their requests end, all at `seen_ps`.

        A refused request ends as well. Calls come in order of time; no sending is before
        `seen_ps`, and the order of `rids` does not matter.
        """


class Release(Protocol):
    """A frozen value: how clients wait."""

    @property
    def self_limiting(self) -> bool:
        """Whether slow service slows arrivals down, so that no backlog can grow for ever."""

    def begin(self, requests: Sequence[Request]) -> Clients:
        """Clients of a run with these requests, which may be the first ones of the load."""


@dataclass(frozen=True, slots=True)
class Users:
    """A closed loop: whoever is free sends the next request of the load, none before its arrival.

    As in the benchmarks of vLLM and SGLang with `--max-concurrency`, whose semaphore lets so many
    requests out: request i is the i-th to be sent, whichever user sends it.

    Attributes:
        concurrency: users, each with at most one request out.
        think_ps: from the end of a reply to the user's next request.
    """

    concurrency: int
    think_ps: int = 0

    @property
    def self_limiting(self) -> bool:
        """Yes."""
        return True

    def begin(self, requests: Sequence[Request]) -> Clients:
        """All users are free."""
        return _FreeUsers(self, requests)


class _FreeUsers:
    """All users think equally long, so it does not matter which of them sends."""

    def __init__(self, users: Users, requests: Sequence[Request]) -> None:
        self._users = users
        self._rest = iter(requests)

    def first(self) -> list[Sending]:
        """One request for each user."""
        return self._next(self._users.concurrency, 0)

    def after(self, rids: Sequence[int], seen_ps: int) -> list[Sending]:
        """The next requests, as many as have ended."""
        return self._next(len(rids), seen_ps + self._users.think_ps)

    def _next(self, count: int, free_ps: int) -> list[Sending]:
        # arrivals ascend and ends come in order of time, so requests are sent in order, too
        upcoming = (request for _, request in zip(range(count), self._rest, strict=False))
        return [Sending(r.rid, max(free_ps, r.arrival_ps)) for r in upcoming]


@dataclass(frozen=True, slots=True)
class Turns:
    """Sessions of turns: each turn waits for the reply to the one before it, and then a gap.

    Attributes:
        gaps_ps: by request, from the end of the session's previous turn to this one; None for
            a first turn. A session's turns follow each other in the load.
        concurrency: most sessions at a time, or None. The next one starts when one has ended,
            never before its arrival.
    """

    gaps_ps: tuple[int | None, ...]
    concurrency: int | None = None

    @property
    def self_limiting(self) -> bool:
        """Only where the sessions wait for each other."""
        return self.concurrency is not None

    def begin(self, requests: Sequence[Request]) -> Clients:
        """No session has started."""
        return _Sessions(self, requests)


class _Sessions:
    def __init__(self, turns: Turns, requests: Sequence[Request]) -> None:
        self._gaps = turns.gaps_ps[: len(requests)]
        starts = [r for r, gap in zip(requests, self._gaps, strict=True) if gap is None]
        self._at_once = turns.concurrency or len(starts)
        self._rest = iter(starts)

    def first(self) -> list[Sending]:
        """First turns of the sessions that need not wait for another one."""
        return self._start(self._at_once, 0)

    def after(self, rids: Sequence[int], seen_ps: int) -> list[Sending]:
        """The next turns, and sessions in place of those that are over."""
        sent, over = [], 0
        for rid in rids:
            following = rid + 1
            gap = self._gaps[following] if following < len(self._gaps) else None
            if gap is None:
                over += 1
            else:
                sent.append(Sending(following, seen_ps + gap))
        return sent + self._start(over, seen_ps)

    def _start(self, count: int, free_ps: int) -> list[Sending]:
        upcoming = (request for _, request in zip(range(count), self._rest, strict=False))
        return [Sending(r.rid, max(free_ps, r.arrival_ps)) for r in upcoming]
