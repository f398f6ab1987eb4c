"""Strict priority classes."""

from dataclasses import dataclass

from servesim.records import Waiting


@dataclass(frozen=True, slots=True)
class Priority:
    """Lower number first, then arrival (vLLM `--scheduling-policy priority`).

    The one order that vLLM itself extends to victims: under it the engine preempts the running
    request with the largest (priority, arrival). It never preempts for a waiting request.
    """

    changes_with_time = False

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """The priority; a preempted request goes back to its place."""
        return (waiting.priority,)
