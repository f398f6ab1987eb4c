"""The waiting queue of an engine, in whatever order the policy wants."""

import heapq
from collections.abc import Container
from typing import NamedTuple

from servesim.policies.order.base import Order
from servesim.scheduler.state import RequestState
from servesim.scheduler.views import waiting_view


class _Entry(NamedTuple):
    key: tuple[float, ...]
    arrival_ps: int
    rid: int
    state: RequestState


class WaitingQueue:
    """A heap by (policy key, arrival, request number), as vLLM's priority queue is one.

    A preempted request is pushed like any other and competes by its key.

    Attributes:
        entries: the queue; its first element is the head, the others are in no order.
        changes_with_time: whether the head may change while nothing else does.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.entries: list[_Entry] = []  # a heap; empty is what is asked most often
        self.changes_with_time = order.changes_with_time

    def push(self, state: RequestState, now_s: float) -> None:
        """Add a new or a preempted request."""
        heapq.heappush(self.entries, self._entry(state, now_s))

    def refresh(self, now_s: float) -> None:
        """Ask for all keys anew where they may have changed."""
        if self.changes_with_time and len(self.entries) > 1:
            self.entries = [self._entry(entry.state, now_s) for entry in self.entries]
            heapq.heapify(self.entries)

    def head(self) -> RequestState:
        """The request to be admitted next."""
        return self.entries[0].state

    def pop(self) -> RequestState:
        """Take the head out."""
        return heapq.heappop(self.entries).state

    def in_order(self) -> list[RequestState]:
        """Everyone who waits, the head first."""
        self.entries.sort()  # a sorted list is a heap
        return [entry.state for entry in self.entries]

    def discard(self, rids: Container[int]) -> None:
        """Take these requests out, wherever they are."""
        self.entries = [entry for entry in self.entries if entry.rid not in rids]
        heapq.heapify(self.entries)

    def remove(self, state: RequestState) -> None:
        """Take out a request that is not at the head: it has ended, or was given up."""
        self.entries = [entry for entry in self.entries if entry.state is not state]
        heapq.heapify(self.entries)

    def _entry(self, state: RequestState, now_s: float) -> _Entry:
        request = state.request
        key = self._order.key(waiting_view(state), now_s)
        return _Entry(key, request.arrival_ps, request.rid, state)
