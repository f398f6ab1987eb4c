"""Who is preempted, where a policy says so."""

from collections.abc import Sequence

from servesim.policies.victim.base import Victim
from servesim.scheduler.state import RequestState
from servesim.scheduler.views import running_view


def victim_position(policy: Victim, running: Sequence[RequestState]) -> int:
    """Where in `running`, which is not empty, the victim stands.

    Every running request may be it: one that has been scheduled in the same step gives its tokens
    back, and the one that needs the block may give itself up.
    """

    def key(position: int) -> tuple[tuple[float, ...], int]:
        state = running[position]
        view = running_view(state, state.table.num_blocks, state.resumes)
        return policy.key(view), state.admission_order

    return max(range(len(running)), key=key)
