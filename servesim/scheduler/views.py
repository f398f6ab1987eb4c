"""Requests as policies may see them: no engine handles, no true length."""

from typing import Protocol

from servesim.policies.victim.base import Running
from servesim.records import Request, Waiting
from servesim.units import ps_to_seconds


class Progress(Protocol):
    """What every scheduler remembers of a request; see `RequestState` for the meanings."""

    request: Request
    arrival_order: int
    admission_order: int
    known: int
    computed: int
    predicted_tokens: float
    requeued: int


def waiting_view(state: Progress) -> Waiting:
    """A waiting request, for an order."""
    request = state.request
    return Waiting(
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


def running_view(state: Progress, kv_blocks: int, preempted: bool) -> Running:
    """A running request, for a victim policy.

    Args:
        state: the request.
        kv_blocks: blocks or pages that it holds.
        preempted: whether it was preempted before.
    """
    request = state.request
    return Running(
        rid=request.rid,
        arrived_s=ps_to_seconds(request.arrival_ps),
        admission_order=state.admission_order,
        prompt_tokens=request.prompt_tokens,
        generated_tokens=state.known - request.prompt_tokens,
        computed_tokens=state.computed,
        kv_blocks=kv_blocks,
        predicted_tokens=state.predicted_tokens,
        priority=request.priority,
        tenant=request.tenant,
        preempted=preempted,
    )
