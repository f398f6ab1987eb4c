"""First come, first served."""

from dataclasses import dataclass

from servesim.records import Waiting


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Order of arrival, victims to the front (vLLM `--scheduling-policy fcfs`)."""

    changes_with_time = False

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """The latest victim first, then the earliest arrival."""
        return (-waiting.requeued, waiting.arrival_order)
