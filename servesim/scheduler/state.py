"""What a scheduler remembers of one request."""

from servesim.kv.table import BlockTable
from servesim.records import Request


class RequestState:
    """Progress of one request inside an engine.

    Attributes:
        admission_order: number of its latest admission; the running list is in this order.
        grouped: whether it is in a `DecodeGroup`, which then keeps its counters.
        base: computed tokens less the group's counter.
        known: prompt and sampled tokens.
        computed: tokens whose KV is in the cache, or will be once the step in flight ends.
        drafts: draft tokens proposed for the next step.
        mid_prefill: whether the last step left known tokens uncomputed.
        running: whether it is admitted; else it waits.
        resumes: whether it was preempted at least once.
        requeued: its place at the front of the queue, the largest number first: that of the
            preemption that sent it back; 0 before the first.
        placeholders: tokens, accepted drafts included, that steps in flight may sample at most
            (asynchronous scheduling).
        in_flight: its tokens in steps in flight (asynchronous scheduling).
        stale: of these, tokens of steps from before its last preemption.
        high_water: most tokens ever computed, up to the last preemption.
        stop_at: known tokens at which the reply ends, by EOS or `max_tokens`.
    """

    __slots__ = (
        "admission_order",
        "arrival_order",
        "base",
        "computed",
        "drafts",
        "grouped",
        "high_water",
        "in_flight",
        "known",
        "mid_prefill",
        "placeholders",
        "predicted_tokens",
        "request",
        "requeued",
        "resumes",
        "running",
        "stale",
        "stop_at",
        "table",
    )

    def __init__(
        self, request: Request, table: BlockTable, arrival_order: int, predicted_tokens: float
    ) -> None:
        self.request = request
        self.arrival_order = arrival_order
        self.predicted_tokens = predicted_tokens
        self.table = table
        self.admission_order = self.base = 0
        self.grouped = False
        self.known = request.prompt_tokens
        self.computed = 0
        self.drafts = 0
        self.mid_prefill = False
        self.running = False
        self.resumes = False
        self.requeued = 0
        self.placeholders = self.in_flight = self.stale = 0
        self.high_water = 0
        reply = min(request.output_tokens, request.max_tokens)
        self.stop_at = request.prompt_tokens + reply

    def lose_blocks(self, preemption: int) -> None:
        """Forget all computed tokens; sampled tokens are kept (recompute preemption)."""
        # drafts in flight may yet be rejected
        self.high_water = max(self.high_water, min(self.computed, self.known))
        self.running = False
        self.resumes = True
        self.requeued = preemption
        self.computed = 0
        self.drafts = 0
        self.mid_prefill = False
