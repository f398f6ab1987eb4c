"""The least urgent first."""

from dataclasses import dataclass

from servesim.policies.victim.base import Running


@dataclass(frozen=True, slots=True)
class LeastUrgent:
    """The largest priority number, then the latest arrival, as vLLM does under its priority order.

    Here under any order of the queue.
    """

    def key(self, running: Running) -> tuple[float, ...]:
        """Priority and arrival."""
        return (running.priority, running.arrived_s)
