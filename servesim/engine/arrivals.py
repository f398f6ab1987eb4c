"""A load on its way to a replica, without an event for each request.

Whoever serves the requests looks at `next_ps` and takes them when it is time. That needs no event
as long as nothing else happens in the simulation. In an open loop all times are known beforehand;
clients that wait for replies are told when requests end, and `next_ps` moves.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from servesim.engine.front_end import FrontEnd
from servesim.records import Request
from servesim.workload.release import Clients, Sending

NEVER = 2**100  # picoseconds; no run gets there


class Arrivals:
    """The requests of an open loop that have not arrived yet.

    Args:
        requests: the load, sorted by arrival.
        predictions: predicted reply tokens, one per request.

    Attributes:
        next_ps: when the next one arrives; NEVER after the last.
    """

    def __init__(self, requests: Sequence[Request], predictions: Sequence[float]) -> None:
        self._requests = requests
        self._rest = zip(requests, predictions, strict=True)
        self._next = next(self._rest, None)
        self._num_taken = 0
        self.next_ps = self._next[0].arrival_ps if self._next else NEVER

    def take(self) -> tuple[Request, float]:
        """The request that arrives at `next_ps`, and its predicted reply tokens.

        Raises:
            ValueError: all have been taken, or there are not as many predictions as requests.
        """
        taken = self._next
        if taken is None:
            raise ValueError("all requests of the load have arrived")
        self._num_taken += 1
        self._next = following = next(self._rest, None)
        self.next_ps = following[0].arrival_ps if following else NEVER
        return taken

    def ended(self, rids: Sequence[int], now_ps: int) -> None:
        """Requests have ended, refused ones included; nobody waits for that."""

    def not_taken(self) -> tuple[Request, ...]:
        """The requests that have not arrived."""
        return tuple(self._requests[self._num_taken :])


class ClientArrivals:
    """Requests that clients send, through a front end that delays them; the seam of `Arrivals`.

    Who reaches the engine at one instant does so in order of request numbers.

    Args:
        requests: the load, each at the place of its number.
        predictions: predicted reply tokens, one per request.
        clients: who sends them.
        front_end: what lies between.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        predictions: Sequence[float],
        clients: Clients,
        front_end: FrontEnd,
    ) -> None:
        if len(requests) != len(predictions):
            raise ValueError(f"{len(predictions)} predictions for {len(requests)} requests")
        self._unsent = dict(enumerate(requests))
        self._predictions = predictions
        self._clients, self._front_end = clients, front_end
        self._sent: list[tuple[int, int, Request]] = []  # a heap by arrival at the engine, rid
        self.next_ps = NEVER
        self._send(clients.first())

    def take(self) -> tuple[Request, float]:
        """The request that reaches the engine at `next_ps`, as it was sent; its prediction.

        Raises:
            ValueError: no request is on its way.
        """
        if not self._sent:
            raise ValueError("no request is on its way")
        _, rid, request = heapq.heappop(self._sent)
        self.next_ps = self._sent[0][0] if self._sent else NEVER
        return request, self._predictions[rid]

    def ended(self, rids: Sequence[int], now_ps: int) -> None:
        """Requests have ended, refused ones included; their clients hear of it."""
        self._send(self._clients.after(rids, now_ps + self._front_end.output_ps))

    def not_taken(self) -> tuple[Request, ...]:
        """The requests that are on their way, or were never sent."""
        return (*(request for _, _, request in self._sent), *self._unsent.values())

    def _send(self, sendings: Sequence[Sending]) -> None:
        at_once = Counter(sent_ps for _, sent_ps in sendings)
        for rid, sent_ps in sendings:
            request = self._unsent.pop(rid)
            if request.arrival_ps != sent_ps:
                request = replace(request, arrival_ps=sent_ps)
            queued_ps = sent_ps + self._front_end.queue_ps(request.prompt_tokens, at_once[sent_ps])
            heapq.heappush(self._sent, (queued_ps, rid, request))
        if self._sent:
            self.next_ps = self._sent[0][0]


class OpenLoop:
    """Clients that wait for nobody: each request is sent when it arrives."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests

    def first(self) -> list[Sending]:
        """All."""
        return [Sending(request.rid, request.arrival_ps) for request in self._requests]

    def after(self, rids: Sequence[int], seen_ps: int) -> list[Sending]:
        """Nothing."""
        return []
