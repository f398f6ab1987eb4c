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
        requeued: number of the preemption that sent it back to the queue, 0 before the first.
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
        "known",
        "mid_prefill",
        "predicted_tokens",
        "request",
        "requeued",
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
        self.requeued = 0
        self.high_water = 0
        reply = min(request.output_tokens, request.max_tokens)
        self.stop_at = request.prompt_tokens + reply

    def lose_blocks(self, preemption: int) -> None:
        """Forget all computed tokens; sampled tokens are kept (recompute preemption)."""
        self.high_water = max(self.high_water, self.computed)
        self.requeued = preemption
        self.computed = 0
        self.drafts = 0
        self.mid_prefill = False
