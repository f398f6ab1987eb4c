"""The limits in force in one SGLang engine, and the requests beyond them."""

from dataclasses import dataclass

from servesim.records import Request
from servesim.scheduler.rejections import beyond_context
from servesim.scheduler.sglang.prefill import Limits

# tokens that the engine keeps between the longest prompt it takes and the longest request
_RESERVED_INPUT_TOKENS = 5


@dataclass(frozen=True, slots=True)
class SGLangLimits:
    """Limits of a run.

    Attributes:
        prefill: of a prefill batch.
        max_running_requests: admitted requests.
        enable_mixed_chunk: whether decodes ride along with prefill batches.
        disable_overlap_schedule: whether a step is planned only when the one before it is over.
        kv_tokens: token slots of the pool, in whole pages.
        page_size: tokens per page.
        max_model_len: longest context, tokens.
    """

    prefill: Limits
    max_running_requests: int
    enable_mixed_chunk: bool
    disable_overlap_schedule: bool
    kv_tokens: int
    page_size: int
    max_model_len: int

    def max_new_tokens(self, request: Request) -> int:
        """The reply's cap: two tokens of the longest context stay unused (`max_req_len`)."""
        return min(request.max_tokens, self.max_model_len - 2 - request.prompt_tokens)

    def reject_reason(self, request: Request) -> str | None:
        """What the server answers with an error, and what it would cut short for lack of memory.

        Source: SGLang 0.5.23, managers/tokenizer_manager.py (longest context), managers/
        tp_worker.py (`max_req_input_len`), managers/scheduler.py (`init_req_max_new_tokens`); the
        engine lowers `max_new_tokens` to what its pool can hold, here the request is refused.
        """
        if too_long := beyond_context(request, self.max_model_len):
            return too_long
        prompt, length = request.prompt_tokens, request.prompt_tokens + request.max_tokens
        longest = min(self.max_model_len, self.kv_tokens) - 2 - _RESERVED_INPUT_TOKENS
        if prompt > longest:
            return f"prompt = {prompt} > {longest} tokens, the longest that is taken"
        paged = -(-prompt // self.page_size) * self.page_size
        most = self.kv_tokens - self.page_size - 1
        if paged + self.max_new_tokens(request) > most:
            return f"prompt + max_tokens = {length} > {most} tokens of KV cache"
        return None
