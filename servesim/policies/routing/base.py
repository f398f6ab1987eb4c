"""The seam for routing: what a front end knows of its engines, and which one gets a request."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from servesim.records import Request


class EngineCounts(NamedTuple):
    """What an engine tells of itself: requests in its waiting queue, admitted requests."""

    num_waiting: int
    num_running: int


class Router(Protocol):
    """One front end in one run: told what happens, asked where a request goes.

    Both are called in the order of time. Being told the same counts again changes nothing.
    """

    def observe(self, now_ps: int, counts: Sequence[EngineCounts]) -> None:
        """A step has ended; the counts of every engine hold from now on."""

    def route(self, request: Request, now_ps: int) -> int:
        """Number of the engine that gets the request, whose queue is one longer from now on.

        Args:
            request: what arrives; its `output_tokens` are not to be looked at.
            now_ps: simulated time.
        """


class Routing(Protocol):
    """How requests are spread over engines; a value whose fields are its YAML."""

    def start(self, engines: int) -> Router:
        """A front end that has seen nothing yet."""
