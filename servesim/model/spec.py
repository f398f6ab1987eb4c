"""A dense decoder-only transformer and the sizes that follow from its layout.

Sizes per rank under tensor parallelism: a KV head is never split, so with more ranks than KV
heads each rank still holds one (vLLM `get_num_kv_heads`).
"""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Published layout of a dense model with gated MLPs (Llama, Qwen, Mistral family).

    Attributes:
        name: published name.
        num_layers: decoder layers.
        hidden_size: width of the residual stream.
        num_heads: query heads.
        num_kv_heads: key/value heads (GQA).
        head_dim: width of a head.
        intermediate_size: width of the MLP.
        vocab_size: rows of the embedding.
        tied_embeddings: whether head and embedding are one matrix.
        max_position_embeddings: longest context.
        attention_bias: whether q, k and v have biases (Qwen2).
        qk_norm: whether q and k are normalised per head (Qwen3).
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    max_position_embeddings: int
    attention_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        for field in (
            "num_layers",
            "hidden_size",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
        ):
            checks.whole(field, getattr(self, field), at_least=1)
        for field in ("tied_embeddings", "attention_bias", "qk_norm"):
            checks.flag(field, getattr(self, field))
        if self.num_heads % self.num_kv_heads:
            reason = f"must divide num_heads {self.num_heads}"
            raise SettingError("num_kv_heads", self.num_kv_heads, reason)

    @property
    def qkv_width(self) -> int:
        """Columns of the fused q, k and v projection."""
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def linear_parameters_per_layer(self) -> int:
        """Weights of one layer's four matrix multiplications."""
        attention = self.hidden_size * (self.qkv_width + self.num_heads * self.head_dim)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def embedding_parameters(self) -> int:
        """One vocabulary matrix."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights, embeddings and head included."""
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        bias = self.qkv_width if self.attention_bias else 0
        layers = self.num_layers * (self.linear_parameters_per_layer + norms + bias)
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return layers + tables + self.hidden_size

    def weight_bytes(self, dtype: str, tp: int = 1) -> int:
        """Bytes of weights on one of `tp` ranks."""
        return self.num_parameters * DTYPE_BYTES[dtype] // tp

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share the heads evenly, each KV head whole (vLLM refuses the rest)."""
        kv = self.num_kv_heads
        return self.num_heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)

    def kv_heads_per_rank(self, tp: int = 1) -> int:
        """KV heads on one rank; replicated when there are more ranks than heads."""
        return max(1, self.num_kv_heads // tp)

    def kv_bytes_per_token(self, dtype: str, tp: int = 1) -> int:
        """Bytes of K and V of one token over all layers, on one rank."""
        width = self.kv_heads_per_rank(tp) * self.head_dim
        return 2 * self.num_layers * width * DTYPE_BYTES[dtype]
