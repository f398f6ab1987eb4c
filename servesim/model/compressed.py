"""DeepSeek-V4's attention: a short window, and a compressed entry for every few tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim.model.attention import Indexer
from servesim.model.dtypes import FP8_DS_MLA, kv_bytes_of
from servesim.model.parts import KVLayers, Weights

FP8_SCALE_BLOCK = 64  # values that share an 8-bit scale in a packed slot; scales fill 8 bytes


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """Multi-query attention whose one vector per token is key and value alike.

    The compressors' running state is not counted.

    Attributes:
        num_heads: query heads.
        head_dim: width of a head, the rotary part included.
        rope_dim: width of the rotary part.
        q_lora_rank: width of the compressed query.
        o_lora_rank: width of a group's compressed output.
        o_groups: of the output projection.
        window_tokens: tokens that are kept uncompressed.
        ratio: tokens per compressed entry; 0 is a window only.
        indexer: picks compressed entries, where there is one; its keys have a compressor too.
    """

    num_heads: int
    head_dim: int
    rope_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    window_tokens: int
    ratio: int
    indexer: Indexer | None

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Low-rank query, one key/value, grouped output, compressors."""
        part, name, heads = "attention", "self_attn", self.num_heads
        query, rank = heads * self.head_dim, self.q_lora_rank
        out = self.o_groups * self.o_lora_rank
        yield Weights(part, f"{name}.wq_a", hidden_size * rank, 1)
        yield Weights(part, f"{name}.wq_b", rank * query, heads)
        yield Weights(part, f"{name}.wkv", hidden_size * self.head_dim, 1)
        yield Weights(part, f"{name}.wo_a", query * self.o_lora_rank, self.o_groups)
        yield Weights(part, f"{name}.wo_b", out * hidden_size, self.o_groups)
        yield Weights(part, f"{name}.sinks", heads, heads, linear=False)
        yield Weights("norms", f"{name}.norms", rank + self.head_dim, 1, linear=False)
        if self.ratio:
            yield self._compressor(part, f"{name}.compressor", hidden_size, self.head_dim)
        if self.indexer is not None:
            yield from self.indexer.weights(hidden_size)
            width = self.indexer.head_dim
            yield self._compressor("indexer", f"{name}.indexer.compressor", hidden_size, width)

    def _compressor(self, part: str, name: str, hidden_size: int, width: int) -> Weights:
        """Values and their weights in a pool, a position each, a norm; short pools overlap."""
        columns = width * (2 if self.indexer is not None else 1)
        return Weights(part, name, (2 * hidden_size + self.ratio) * columns + width, 1)

    def slot_bytes(self, kv_dtype: str) -> int:
        """One entry: in fp8 448 values, 64 bf16 rotary ones and 8 bytes of scales make 584."""
        if kv_dtype not in ("fp8", FP8_DS_MLA):
            return kv_bytes_of(self.head_dim, kv_dtype)
        values = self.head_dim - self.rope_dim
        scales = -(-values // FP8_SCALE_BLOCK)
        return values + 2 * self.rope_dim + -(-scales // 8) * 8

    def caches(self, kv_dtype: str, tp: int) -> Iterator[KVLayers]:
        """The window, the compressed entries and their index keys; the same on every rank."""
        slot = self.slot_bytes(kv_dtype)
        yield KVLayers("sliding window", 1, slot, self.window_tokens, 0)
        if self.ratio:
            yield KVLayers("compressed", 1, -(-slot // self.ratio), None, 0)
        if self.indexer is not None and self.ratio:
            yield KVLayers("indexer", 1, -(-self.indexer.key_bytes // self.ratio), None, 0)

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share heads and output groups evenly."""
        return self.num_heads % tp == 0 and self.o_groups % tp == 0
