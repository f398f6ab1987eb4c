"""An open-loop load on its way to a replica: when each request arrives is known beforehand."""

from collections.abc import Sequence

from servesim.records import Request

NEVER = 2**100  # picoseconds; no run gets there


class Arrivals:
    """The requests that have not arrived yet.

    Whoever serves them looks at `next_ps` and takes them when it is time. That needs no event for
    each request as long as nothing else happens in the simulation.

    Args:
        requests: the load, sorted by arrival.
        predictions: predicted reply tokens, one per request.

    Attributes:
        next_ps: when the next one arrives; NEVER after the last.
    """

    def __init__(self, requests: Sequence[Request], predictions: Sequence[float]) -> None:
        self._rest = zip(requests, predictions, strict=True)
        self._next = next(self._rest, None)
        self.next_ps = self._next[0].arrival_ps if self._next else NEVER

    def take(self) -> tuple[Request, float]:
        """The request that arrives at `next_ps`, and its predicted reply tokens.

        Raises:
            ValueError: all have been taken, or there are not as many predictions as requests.
        """
        taken = self._next
        if taken is None:
            raise ValueError("all requests of the load have arrived")
        self._next = following = next(self._rest, None)
        self.next_ps = following[0].arrival_ps if following else NEVER
        return taken
