"""The lines about the KV cache that an engine prints at start-up, word for word.

Sources: vLLM 0.6.6 executor/gpu_executor.py; 0.8.5, 0.11, 0.15 and 0.20 v1/core/kv_cache_utils.py
(two lines); 0.33 the same file (`update_kv_cache_capacity`, one line); SGLang 0.5.23
mem_cache/memory_pool.py (`_finalize_allocation_log`, whose GB are GiB).
"""

from typing import NamedTuple

from servesim.kv.groups import KVLayout
from servesim.units import gib, gib_to_bytes

ONE_GROUP = "vllm-0.11"  # style whose tokens are those of one group of layers
V0_SWAP_GIB = 4.0  # swap_space, of which V0 makes its CPU blocks
_TORCH = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": "torch.float8_e4m3fn"}


class StartUp(NamedTuple):
    """What an engine finds at start-up.

    Attributes:
        num_blocks: of the cache, the null block included.
        layout: of its blocks.
        max_model_len: longest context, tokens.
        kv_bytes_per_token: on one rank.
        kv_dtype: of the cache.
        latent: whether the cache is one vector per token (MLA), not keys and values.
    """

    num_blocks: int
    layout: KVLayout
    max_model_len: int
    kv_bytes_per_token: int
    kv_dtype: str
    latent: bool

    @property
    def concurrency(self) -> float:
        """Requests of the greatest length at a time."""
        return self.layout.concurrency(self.num_blocks, self.max_model_len)


def logged(style: str, start: StartUp) -> tuple[int, float, tuple[str, ...]]:
    """(tokens, concurrency, lines) as the engine counts and prints them.

    Args:
        style: "vllm-v0", "vllm-0.8" (blocks not rounded up to a request's), "vllm-0.11" (two
            lines, tokens of one group), "vllm-0.33" (one line, tokens that follow from the
            concurrency), "sglang", or "" for an engine that prints nothing of the kind.
        start: what it finds.
    """
    length, layout = start.max_model_len, start.layout
    slots = start.num_blocks * layout.block_size
    if style == "vllm-0.33":
        tokens = int(start.concurrency * length)
        line = f"GPU KV cache size: {tokens:,} tokens, {_concurrency(start.concurrency, length)}"
        return tokens, start.concurrency, (line,)
    if style == ONE_GROUP:
        smallest = min(group.block_size for group in layout.groups)
        tokens = start.num_blocks // len(layout.groups) * smallest
        lines = _size(tokens), _concurrency(start.concurrency, length)
        return tokens, start.concurrency, lines
    if style == "vllm-0.8":
        return slots, slots / length, (_size(slots), _concurrency(slots / length, length))
    if style == "vllm-v0":
        cpu = gib_to_bytes(V0_SWAP_GIB) // layout.block_bytes
        requests = f"Maximum concurrency for {length} tokens per request: {slots / length:.2f}x"
        blocks = f"# GPU blocks: {start.num_blocks}, # CPU blocks: {cpu}"
        return slots, slots / length, (blocks, requests)
    if not layout.uniform:
        slots = int(start.concurrency * length)
    if style == "sglang":
        return slots, slots / length, (_pool(slots, start),)
    return slots, slots / length, ()


def _size(tokens: int) -> str:
    return f"GPU KV cache size: {tokens:,} tokens"


def _concurrency(requests: float, length: int) -> str:
    return f"Maximum concurrency for {length:,} tokens per request: {requests:.2f}x"


def _pool(tokens: int, start: StartUp) -> str:
    size = gib(tokens * start.kv_bytes_per_token)
    sizes = f"KV size: {size:.2f} GB"
    if not start.latent:
        sizes = f"K size: {size / 2:.2f} GB, V size: {size / 2:.2f} GB"
    dtype = _TORCH.get(start.kv_dtype, start.kv_dtype)
    return f"KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, {sizes}"
