"""Strict priority classes."""

from dataclasses import dataclass

from servesim.records import Waiting


@dataclass(frozen=True, slots=True)
class Priority:
    """Lower number first, then arrival (vLLM `--scheduling-policy priority`).

    The sign is vLLM's; SGLang's own numbers go the other way. The one order that vLLM itself
    extends beyond the queue: where V1 needs room for a running request, it preempts the one with
    the largest (priority, arrival), and nobody for a waiting request; V0 without chunked prefill
    preempts the last admitted, and evicts the largest for a more urgent waiting request. In all
    other profiles it ranks the waiting queue and nothing else.
    """

    changes_with_time = False

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """The priority; a preempted request goes back to its place."""
        return (waiting.priority,)
