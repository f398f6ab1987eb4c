"""Nobody joins a queue that is long already."""

from dataclasses import dataclass

from servesim import checks
from servesim.policies.admission.base import EngineLoad
from servesim.records import Request


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """HTTP 503 while the waiting queue is full, as vLLM's `max_num_queued_reqs`.

    A request that arrives at an idle engine waits too, until the next step begins: of several
    that arrive at once, `max_queued_reqs` are let in.

    Attributes:
        max_queued_reqs: waiting requests from which on the next one is refused.
    """

    max_queued_reqs: int = 100

    def __post_init__(self) -> None:
        checks.whole("max_queued_reqs", self.max_queued_reqs, at_least=1)

    def refuse(self, request: Request, load: EngineLoad) -> str | None:
        """The queue's length against the limit; all requests are alike."""
        waiting, most = load.num_waiting, self.max_queued_reqs
        if waiting < most:
            return None
        return f"HTTP 503: num_waiting = {waiting} >= max_queued_reqs {most}"
