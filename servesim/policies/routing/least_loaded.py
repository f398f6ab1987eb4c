"""vLLM's internal load balancer: fewest requests, those that wait count more."""

from collections.abc import Sequence
from dataclasses import dataclass

from servesim import checks
from servesim.policies.routing.base import EngineCounts, Router
from servesim.records import Request
from servesim.units import seconds_to_ps


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """The smallest `waiting_weight` · waiting + running; the first of equals.

    The front end goes by counts that it is sent from time to time, and adds to them what it has
    sent out since (vLLM 0.20 v1/engine/core_client.py, DPLBAsyncMPClient; one API server).

    Attributes:
        waiting_weight: running requests that one waiting request counts as.
        published_every_s: seconds between two publications of the counts; 0 keeps them fresh. The
            engine's coordinator waits as long between two of them (v1/engine/coordinator.py);
            here they come at multiples of it.
    """

    waiting_weight: float = 4.0
    published_every_s: float = 0.1

    def __post_init__(self) -> None:
        checks.not_negative("waiting_weight", self.waiting_weight)
        checks.not_negative("published_every_s", self.published_every_s)

    def start(self, engines: int) -> Router:
        """A front end whose engines are idle."""
        every_ps = seconds_to_ps(self.published_every_s)
        return _Balancer(engines, self.waiting_weight, every_ps)


class _Balancer:
    """`_now` are the counts as they are, `_known` those that the front end goes by."""

    def __init__(self, engines: int, weight: float, every_ps: int) -> None:
        self._weight, self._every_ps = weight, every_ps
        self._now = [EngineCounts(0, 0)] * engines
        self._known = list(self._now)
        self._published = 0  # times so far

    def observe(self, now_ps: int, counts: Sequence[EngineCounts]) -> None:
        """Counts change; what was published until now holds the earlier ones."""
        self._publish(now_ps)
        self._now = list(counts)

    def route(self, request: Request, now_ps: int) -> int:
        """The lowest score, by what is known."""
        self._publish(now_ps)
        scores = [self._weight * waiting + running for waiting, running in self._known]
        chosen = scores.index(min(scores))
        for counts in (self._now, self._known):
            waiting, running = counts[chosen]
            counts[chosen] = EngineCounts(waiting + 1, running)
        return chosen

    def _publish(self, now_ps: int) -> None:
        due = now_ps // self._every_ps if self._every_ps else self._published + 1
        if due > self._published:
            self._published, self._known = due, list(self._now)
