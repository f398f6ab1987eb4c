"""The waiting queue of an engine, in whatever order the policy wants."""

import heapq
from collections.abc import Container

from servesim.policies.order.base import Order
from servesim.policies.order.fcfs import Fcfs
from servesim.scheduler.state import RequestState
from servesim.scheduler.views import waiting_view

_Entry = tuple[tuple[float, ...], int, int, RequestState]  # key, arrival, request number, state


class WaitingQueue:
    """A heap by (policy key, arrival, request number), as vLLM's priority queue is one.

    A preempted request is pushed like any other and competes by its key.

    Attributes:
        entries: the queue; its first element is the head, the others are in no order. The last
            item of an entry is the request's state.
        changes_with_time: whether the head may change while nothing else does.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._by_arrival = type(order) is Fcfs
        self.entries: list[_Entry] = []  # a heap; empty is what is asked most often
        self.changes_with_time = order.changes_with_time

    def push(self, state: RequestState, now_s: float) -> None:
        """Add a new or a preempted request."""
        heapq.heappush(self.entries, self._entry(state, now_s))

    def refresh(self, now_s: float) -> None:
        """Ask for all keys anew where they may have changed."""
        if self.changes_with_time and len(self.entries) > 1:
            self.entries = [self._entry(entry[-1], now_s) for entry in self.entries]
            heapq.heapify(self.entries)

    def head(self) -> RequestState:
        """The request to be admitted next."""
        return self.entries[0][-1]

    def pop(self) -> RequestState:
        """Take the head out."""
        return heapq.heappop(self.entries)[-1]

    def in_order(self) -> list[RequestState]:
        """Everyone who waits, the head first."""
        self.entries.sort()  # a sorted list is a heap
        return [entry[-1] for entry in self.entries]

    def discard(self, rids: Container[int]) -> None:
        """Take these requests out, wherever they are."""
        self.entries = [entry for entry in self.entries if entry[-1].request.rid not in rids]
        heapq.heapify(self.entries)

    def remove(self, state: RequestState) -> None:
        """Take out a request that is not at the head: it has ended, or was given up."""
        self.entries = [entry for entry in self.entries if entry[-1] is not state]
        heapq.heapify(self.entries)

    def _entry(self, state: RequestState, now_s: float) -> _Entry:
        request = state.request
        if self._by_arrival:
            # the key of `Fcfs`, without the view of the request that it would look at
            key: tuple[float, ...] = (-state.requeued, state.arrival_order)
        else:
            key = self._order.key(waiting_view(state), now_s)
        return key, request.arrival_ps, request.rid, state
