"""What one `schedule` call of a `PagedEngine` has decided so far."""

from servesim.records import Admission, Work
from servesim.scheduler.state import RequestState


class Batch:
    """A step in the making.

    Attributes:
        budget: tokens left for the step.
        work: by request.
        admitted: requests that left a queue.
        preempted: victims, in order.
    """

    __slots__ = ("admitted", "budget", "preempted", "work")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.work: dict[int, Work] = {}
        self.admitted: list[Admission] = []
        self.preempted: list[RequestState] = []

    def schedule(self, state: RequestState, num_tokens: int) -> None:
        """Give a request tokens of this step."""
        rid, computed = state.request.rid, state.computed
        samples = computed + num_tokens >= state.known
        self.work[rid] = Work(rid, num_tokens, computed, 0, samples)
        self.budget -= num_tokens

    def take_back(self, state: RequestState) -> None:
        """A victim runs in no step, this one included."""
        work = self.work.pop(state.request.rid, None)
        if work is not None:
            self.budget += work.num_tokens
