"""The engines in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from servesim.policies.routing.base import EngineCounts, Router
from servesim.records import Request


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Request i of those let in goes to engine i mod engines."""

    def start(self, engines: int) -> Router:
        """The first request goes to engine 0."""
        return _Turns(engines)


class _Turns:
    def __init__(self, engines: int) -> None:
        self._next = cycle(range(engines))

    def observe(self, now_ps: int, counts: Sequence[EngineCounts]) -> None:
        """Not looked at."""

    def route(self, request: Request, now_ps: int) -> int:
        """Whoever's turn it is."""
        return next(self._next)
