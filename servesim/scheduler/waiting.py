"""The waiting queue of an engine, in whatever order the policy wants."""

import heapq
from typing import NamedTuple

from servesim.policies.order.base import Order
from servesim.records import Waiting
from servesim.scheduler.state import RequestState
from servesim.units import ps_to_seconds


class _Entry(NamedTuple):
    key: tuple[float, ...]
    arrival_ps: int
    rid: int
    state: RequestState


class WaitingQueue:
    """A heap by (policy key, arrival, request number), as vLLM's priority queue is one.

    A preempted request is pushed like any other and competes by its key.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._heap: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def changes_with_time(self) -> bool:
        """Whether the head may change while nothing else does."""
        return self._order.changes_with_time

    def push(self, state: RequestState, now_s: float) -> None:
        """Add a new or a preempted request."""
        heapq.heappush(self._heap, self._entry(state, now_s))

    def refresh(self, now_s: float) -> None:
        """Ask for all keys anew where they may have changed."""
        if self._order.changes_with_time and len(self._heap) > 1:
            self._heap = [self._entry(entry.state, now_s) for entry in self._heap]
            heapq.heapify(self._heap)

    def head(self) -> RequestState:
        """The request to be admitted next."""
        return self._heap[0].state

    def pop(self) -> RequestState:
        """Take the head out."""
        return heapq.heappop(self._heap).state

    def _entry(self, state: RequestState, now_s: float) -> _Entry:
        request = state.request
        view = Waiting(
            rid=request.rid,
            arrived_s=ps_to_seconds(request.arrival_ps),
            arrival_order=state.arrival_order,
            prompt_tokens=request.prompt_tokens,
            generated_tokens=state.known - request.prompt_tokens,
            predicted_tokens=state.predicted_tokens,
            priority=request.priority,
            tenant=request.tenant,
            requeued=state.requeued,
        )
        return _Entry(self._order.key(view, now_s), request.arrival_ps, request.rid, state)
