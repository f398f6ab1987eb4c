"""What SGLang's scheduler remembers of one request."""

from servesim.kv.radix_cache import Row
from servesim.records import Request


class SGLangState:
    """Progress of one request inside the engine.

    Attributes:
        row: where its KV is.
        max_new_tokens: the request's `max_tokens`, cut to what the longest context leaves.
        stop_at: known tokens at which the reply ends.
        known: prompt and sampled tokens.
        computed: tokens whose KV is in the cache, or will be once the step in flight ends.
        matched: tokens that the last look into the tree found, at most `known - 1`.
        queue_entry: number of its latest entry into the waiting queue.
        admission_order: number of its latest admission.
        retracted: whether it has lost its KV and was not admitted since.
        requeued: number of the retraction that sent it back to the queue, 0 before the first.
        high_water: most tokens ever computed, up to the last retraction.
        arrival_processed_tokens: prefill tokens that the engine had run when it was queued.
        key: sort key of another queue order than the engine's.
    """

    __slots__ = (
        "admission_order",
        "arrival_order",
        "arrival_processed_tokens",
        "computed",
        "high_water",
        "key",
        "known",
        "matched",
        "max_new_tokens",
        "predicted_tokens",
        "queue_entry",
        "request",
        "requeued",
        "retracted",
        "row",
        "stop_at",
    )

    def __init__(
        self,
        request: Request,
        row: Row,
        arrival_order: int,
        predicted_tokens: float,
        max_new_tokens: int,
    ) -> None:
        self.request = request
        self.row = row
        self.arrival_order = arrival_order
        self.predicted_tokens = predicted_tokens
        self.max_new_tokens = max_new_tokens
        self.known = request.prompt_tokens
        self.stop_at = request.prompt_tokens + min(request.output_tokens, max_new_tokens)
        self.computed = self.matched = self.high_water = 0
        self.queue_entry = self.admission_order = self.requeued = 0
        self.arrival_processed_tokens = 0
        self.retracted = False
        self.key: tuple[float, ...] = ()

    @property
    def generated(self) -> int:
        """Tokens sampled so far."""
        return self.known - self.request.prompt_tokens

    def lose_kv(self, retraction: int) -> None:
        """Forget all computed tokens; sampled tokens are kept."""
        self.high_water = max(self.high_water, self.computed)
        self.requeued = retraction
        self.retracted = True
        self.computed = 0
