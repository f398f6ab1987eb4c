"""Mixers with a cache that grows with the context: GQA, MLA and compressed attention."""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim.model.dtypes import FP8_DS_MLA, kv_bytes_of
from servesim.model.parts import KVLayers, Weights

INDEXER_QUANT_BLOCK = 128  # one fp32 scale per block of an indexer key (DeepGEMM, vLLM 0.11)
FP8_LATENT_BLOCK = 128  # one fp32 scale per block of an fp8 latent (FlashMLA)


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head, grouped-query or multi-query attention, over all tokens or a window.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key/value heads; never split, so replicated beyond that many ranks.
        head_dim: width of a query or key head.
        v_head_dim: width of a value head.
        window_tokens: tokens that a query sees; None is all.
        qkv_bias: whether the projections of q, k and v have biases.
        o_bias: whether the output projection has one.
        qk_norm_parameters: weights of the norms of q and k.
        output_gate: whether the query projection also yields a gate of its own width.
        sinks: whether each head has a learned sink logit.
        shared_kv_projection: whether V is the key projection's output (K and V are both cached).
        owns_kv: False where a layer reads the cache of an earlier one (Gemma 3n).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window_tokens: int | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm_parameters: int = 0
    output_gate: bool = False
    sinks: bool = False
    shared_kv_projection: bool = False
    owns_kv: bool = True

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """The projections, their biases and the norms of q and k."""
        q = self.num_heads * self.head_dim * (2 if self.output_gate else 1)
        k, v = self.num_kv_heads * self.head_dim, self.num_kv_heads * self.v_head_dim
        v = 0 if self.shared_kv_projection else v
        k, v = (k, v) if self.owns_kv else (0, 0)
        o = self.num_heads * self.v_head_dim
        heads, kv_heads = self.num_heads, self.num_kv_heads
        yield Weights("attention", "self_attn.q_proj", hidden_size * q, heads)
        yield Weights("attention", "self_attn.k_proj", hidden_size * k, kv_heads)
        yield Weights("attention", "self_attn.v_proj", hidden_size * v, kv_heads)
        yield Weights("attention", "self_attn.o_proj", hidden_size * o, heads)
        if self.qkv_bias:
            yield Weights("attention", "self_attn.q_proj.bias", q, heads, linear=False)
            yield Weights("attention", "self_attn.kv_proj.bias", k + v, kv_heads, linear=False)
        if self.o_bias:
            yield Weights("attention", "self_attn.o_proj.bias", hidden_size, 1, linear=False)
        if self.sinks:
            yield Weights("attention", "self_attn.sinks", heads, heads, linear=False)
        yield Weights("norms", "self_attn.qk_norm", self.qk_norm_parameters, 1, linear=False)

    def kv_heads_per_rank(self, tp: int) -> int:
        """KV heads on one rank; replicated when there are more ranks than heads."""
        return max(1, self.num_kv_heads // tp)

    def caches(self, kv_dtype: str, tp: int) -> Iterator[KVLayers]:
        """One cache, unless it reads that of an earlier layer."""
        if self.owns_kv:
            width = self.kv_heads_per_rank(tp) * (self.head_dim + self.v_head_dim)
            kind = "full attention" if self.window_tokens is None else "sliding window"
            size = kv_bytes_of(width, kv_dtype)
            yield KVLayers(kind, 1, size, self.window_tokens, 0)

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share the heads evenly, each KV head whole (vLLM refuses the rest)."""
        kv = self.num_kv_heads
        return self.num_heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)


@dataclass(frozen=True, slots=True)
class Indexer:
    """The lightning indexer of sparse attention, which picks the tokens to attend to.

    Attributes:
        num_heads: query heads.
        head_dim: width of a head; the one key per token has it too.
        q_rank: width of the compressed query that it reads.
        with_key: whether it projects keys from the hidden state (else a compressor does).
        picked: entries that a token attends to; None is not known, so all.
    """

    num_heads: int
    head_dim: int
    q_rank: int
    with_key: bool = True
    picked: int | None = None

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Queries, the key, its LayerNorm and the weight of each head; replicated on each rank."""
        part, name = "indexer", "self_attn.indexer"
        query = self.q_rank * self.num_heads * self.head_dim
        yield Weights(part, f"{name}.wq_b", query, 1)
        yield Weights(part, f"{name}.weights_proj", hidden_size * self.num_heads, 1)
        if self.with_key:
            yield Weights(part, f"{name}.wk", hidden_size * self.head_dim, 1)
            yield Weights(part, f"{name}.k_norm", 2 * self.head_dim, 1, linear=False)

    @property
    def key_bytes(self) -> int:
        """One fp8 key with its fp32 scales: 132 bytes at 128 wide (vLLM 0.11 deepseek_v2.py)."""
        return self.head_dim + 4 * -(-self.head_dim // INDEXER_QUANT_BLOCK)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): one latent per token, the same on every rank.

    Attributes:
        num_heads: query heads.
        kv_lora_rank: width of the latent.
        qk_rope_head_dim: width of the rotary key that all heads share.
        qk_nope_head_dim: width of a head's other part.
        v_head_dim: width of a value head.
        q_lora_rank: width of the compressed query; None projects it at once.
        indexer: the indexer of sparse attention.
        output_gate: whether the output is gated by a projection of the hidden state.
    """

    num_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    indexer: Indexer | None = None
    output_gate: bool = False

    def weights(self, hidden_size: int) -> Iterator[Weights]:
        """Down projections are replicated, up projections split by head."""
        part, name, heads = "attention", "self_attn", self.num_heads
        q = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        o = heads * self.v_head_dim
        kv_rank = self.kv_lora_rank
        if self.q_lora_rank is None:
            yield Weights(part, f"{name}.q_proj", hidden_size * q, heads)
        else:
            yield Weights(part, f"{name}.q_a_proj", hidden_size * self.q_lora_rank, 1)
            yield Weights(part, f"{name}.q_b_proj", self.q_lora_rank * q, heads)
            yield Weights("norms", f"{name}.q_a_norm", self.q_lora_rank, 1, linear=False)
        down = hidden_size * (kv_rank + self.qk_rope_head_dim)
        up = kv_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        yield Weights(part, f"{name}.kv_a_proj_with_mqa", down, 1)
        yield Weights(part, f"{name}.kv_b_proj", up, heads)
        yield Weights("norms", f"{name}.kv_a_norm", kv_rank, 1, linear=False)
        yield Weights(part, f"{name}.o_proj", o * hidden_size, heads)
        if self.output_gate:
            yield Weights(part, f"{name}.g_proj", hidden_size * o, heads)
        if self.indexer is not None:
            yield from self.indexer.weights(hidden_size)

    def slot_bytes(self, kv_dtype: str) -> int:
        """The latent and the rotary key of one token.

        Sparse attention reads an fp8 cache only in the layout of fp8_ds_mla (vLLM 0.11
        `DeepseekV32ForCausalLM`): 512 fp8, 4 fp32 scales and 64 bf16 are 656 bytes.
        """
        if kv_dtype == FP8_DS_MLA or (kv_dtype == "fp8" and self.indexer is not None):
            scales = -(-self.kv_lora_rank // FP8_LATENT_BLOCK)
            return self.kv_lora_rank + 4 * scales + 2 * self.qk_rope_head_dim
        return kv_bytes_of(self.kv_lora_rank + self.qk_rope_head_dim, kv_dtype)

    def caches(self, kv_dtype: str, tp: int) -> Iterator[KVLayers]:
        """The latent, and the indexer's keys where there is one."""
        yield KVLayers("latent", 1, self.slot_bytes(kv_dtype), None, 0)
        if self.indexer is not None:
            yield KVLayers("indexer", 1, self.indexer.key_bytes, None, 0)

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share the heads evenly."""
        return self.num_heads % tp == 0
