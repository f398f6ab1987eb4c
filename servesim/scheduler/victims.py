"""Who is preempted, where a policy says so."""

from collections.abc import Sequence

from servesim.policies.victim.base import Running, Victim
from servesim.scheduler.state import RequestState
from servesim.units import ps_to_seconds


def victim_position(policy: Victim, running: Sequence[RequestState]) -> int:
    """Where in `running`, which is not empty, the victim stands.

    Every running request may be it: one that has been scheduled in the same step gives its tokens
    back, and the one that needs the block may give itself up.
    """

    def key(position: int) -> tuple[tuple[float, ...], int]:
        state = running[position]
        return policy.key(as_policy_sees(state)), state.admission_order

    return max(range(len(running)), key=key)


def as_policy_sees(state: RequestState) -> Running:
    """A running request without its engine handles and its true length."""
    request = state.request
    return Running(
        rid=request.rid,
        arrived_s=ps_to_seconds(request.arrival_ps),
        admission_order=state.admission_order,
        prompt_tokens=request.prompt_tokens,
        generated_tokens=state.known - request.prompt_tokens,
        computed_tokens=state.computed,
        kv_blocks=state.table.num_blocks,
        predicted_tokens=state.predicted_tokens,
        priority=request.priority,
        tenant=request.tenant,
        preempted=state.resumes,
    )
