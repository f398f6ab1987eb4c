"""The limits in force in one TensorRT-LLM engine, and the requests beyond them."""

from dataclasses import dataclass

from servesim.records import Request
from servesim.scheduler.rejections import beyond_context


@dataclass(frozen=True, slots=True)
class TensorRTLLMLimits:
    """Limits of a run.

    Attributes:
        max_batch_size: running requests.
        max_num_tokens: tokens per step.
        chunks: whether prompts are cut.
        overlaps: whether a step is planned while the one before it runs.
        block_size: tokens per block.
        num_blocks: of the cache.
        max_model_len: longest context, tokens (`max_seq_len`).
    """

    max_batch_size: int
    max_num_tokens: int
    chunks: bool
    overlaps: bool
    block_size: int
    num_blocks: int
    max_model_len: int

    def blocks_to_reserve(self, request: Request) -> int:
        """Blocks for the prompt and the longest reply, the last token's slot included."""
        length = min(request.prompt_tokens + request.max_tokens, self.max_model_len)
        return -(-length // self.block_size)

    def reject_reason(self, request: Request) -> str | None:
        """What the engine answers with an error, and what it could never let in."""
        if too_long := beyond_context(request, self.max_model_len):
            return too_long
        prompt, blocks = request.prompt_tokens, self.blocks_to_reserve(request)
        if not self.chunks and prompt > self.max_num_tokens:
            return f"prompt = {prompt} > max_num_tokens {self.max_num_tokens}"
        if blocks > self.num_blocks:
            return f"blocks to reserve = {blocks} > {self.num_blocks} blocks of KV cache"
        return None

    def chunk(self, remaining: int, budget: int) -> int:
        """Tokens of a prompt for a step with so many left; 0 if it must wait."""
        if remaining <= budget:
            return remaining
        return budget // self.block_size * self.block_size if self.chunks else 0
