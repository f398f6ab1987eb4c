"""The newest first."""

from dataclasses import dataclass

from servesim.policies.victim.base import Running


@dataclass(frozen=True, slots=True)
class LastAdmitted:
    """Who was admitted last, as vLLM and Sarathi-Serve do under FCFS: the old ones get done."""

    def key(self, running: Running) -> tuple[float, ...]:
        """The number of the admission."""
        return (running.admission_order,)
