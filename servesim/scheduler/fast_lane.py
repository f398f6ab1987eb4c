"""The seam for schedulers that can go on by themselves while nobody else has a say.

A replica asks its scheduler, charges the step and writes records, a call and an object for each.
Where nobody looks at single steps, a scheduler may do all three on its own for as long as it takes
only its own common decisions: the fast lane. It decides as it would if it were asked.
"""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol, runtime_checkable

from servesim.cost.base import StepTimer
from servesim.cost.durations import Durations
from servesim.records import Request, Status, StepPlan, StepTime

ROW = Struct("=7q")
pack_row = ROW.pack


class Arriving(Protocol):
    """Requests on their way; see `engine.arrivals`."""

    next_ps: int

    def take(self) -> tuple[Request, float]:
        """The request that arrives at `next_ps`, and its predicted reply tokens."""

    def ended(self, rids: Sequence[int], now_ps: int) -> None:
        """Requests have ended, refused ones included."""


class Track:
    """One request under way, as it will be recorded. Times are picoseconds."""

    __slots__ = (
        "accepted",
        "cached",
        "drafts",
        "first_ps",
        "last_ps",
        "preemptions",
        "queued_ps",
        "reason",
        "recomputed",
        "request",
        "scheduled_ps",
        "status",
        "tokens",
    )

    def __init__(self, request: Request, queued_ps: int | None) -> None:
        self.request = request
        self.queued_ps = queued_ps
        self.scheduled_ps: int | None = None
        self.first_ps: int | None = None
        self.last_ps: int | None = None
        self.tokens = self.cached = self.recomputed = 0
        self.drafts = self.accepted = self.preemptions = 0
        self.status: Status = "unfinished"
        self.reason = ""


class Journal(Protocol):
    """Where it is noted what happens; see `engine.recorder`.

    Attributes:
        live: requests in the engine.
        done: those that have ended.
        rows: packed (steps, first duration, increment, decodes, requests, tokens, blocks).
        taken: blocks that each step of each row took.
    """

    live: dict[int, Track]
    done: list[Track]

    @property
    def rows(self) -> bytearray:
        """Rows packed by `pack_row`."""

    @property
    def taken(self) -> "array[int]":
        """Blocks that each step of each row took."""

    def rejected(self, request: Request, reason: str) -> None:
        """The engine's front end refused it."""

    def recomputed(self, rid: int, tokens: int) -> None:
        """So many tokens are computed again after a preemption."""

    def emitted(self, rid: int, num_tokens: int, now_ps: int) -> None:
        """Tokens stream of a request that did more than go on decoding."""

    def outside(self, axes: tuple[str, ...], steps: int, duration_ps: int) -> None:
        """The last steps lie outside the fitted range."""

    def ran(
        self, durations: Durations, seqs: int, blocks: int, taken: Sequence[int], now_ps: int
    ) -> None:
        """A run of decode steps is over: blocks held before it, and taken by each step."""

    def decoded(self, rid: int, tokens: int, now_ps: int) -> None:
        """A request that just went on decoding has ended, with so many tokens in all."""

    def finished(self, rid: int) -> None:
        """Another one has."""

    def drove(self, steps: int, skipped: int, end_ps: int, streamed: bool) -> None:
        """So many steps were noted in `rows`."""


class Surroundings(NamedTuple):
    """All that a scheduler needs beside itself to go on alone."""

    arrivals: Arriving
    timer: StepTimer
    journal: Journal


class Stretch(NamedTuple):
    """How far it came.

    Attributes:
        now_ps: when the last step ended, or the one begun that `step` is.
        decisions: how many were taken.
        step: one that is under way and ends too late; None where the next decision is due.
    """

    now_ps: int
    decisions: int
    step: tuple[StepPlan, StepTime] | None = None


@runtime_checkable
class FastLane(Protocol):
    """A scheduler that has one."""

    def has_fast_lane(self) -> bool:
        """Whether it does with the settings it was started with."""

    def drive(self, now_ps: int, until_ps: int, most: int, around: Surroundings) -> Stretch:
        """Decide, serve and record from a decision that is due now.

        It stops where the next decision is none of the common ones, and before anything that
        ends at `until_ps` or later.

        Args:
            now_ps: who has arrived by now is in the queue.
            until_ps: when something else in the simulation happens.
            most: so many decisions at most.
            around: arrivals, costs, records.
        """


def fast_lane_of(scheduler: object) -> FastLane | None:
    """The scheduler, where it has one."""
    return scheduler if isinstance(scheduler, FastLane) and scheduler.has_fast_lane() else None
