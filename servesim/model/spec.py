"""A decoder-only model as a list of layers, and the sizes that follow from its layout.

Sizes per rank under tensor parallelism: a KV head is never split, so with more ranks than KV
heads each rank still holds one (vLLM `get_num_kv_heads`); norms, routers and the down
projections of a latent are on every rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.model.attention import Attention
from servesim.model.config import MOST, MOST_LAYERS
from servesim.model.dtypes import DTYPE_BYTES, bytes_of
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.parts import KVLayers, WeightPart, Weights
from servesim.model.quantisation import Quantisation

__all__ = ["DTYPE_BYTES", "KVLayers", "ModelSpec", "WeightPart"]

_WIDTHS = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Published layout of a model.

    The widths alone describe a dense model with gated MLPs (Llama, Qwen, Mistral family); for any
    other, `layers` says what each layer is and the widths are those of its full attention. A
    latent counts as one KV head as wide as its slot.

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
        layers: each layer, in order; () is `num_layers` dense layers of the widths above.
        extra: weights that belong to no layer, e.g. a vision tower; "mtp" among them.
        quantisation: of the published weights; None where they are not quantised.
        notes: what a reader of the configuration had to assume.
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
    layers: tuple[Layer, ...] = ()
    extra: tuple[Weights, ...] = ()
    quantisation: Quantisation | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in _WIDTHS:
            checks.whole(field, getattr(self, field), at_least=1)
            most = MOST_LAYERS if field == "num_layers" else MOST
            if getattr(self, field) > most:
                reason = f"is beyond any model (at most {most})"
                raise SettingError(field, getattr(self, field), reason)
        for field in ("tied_embeddings", "attention_bias", "qk_norm"):
            checks.flag(field, getattr(self, field))
        if self.num_heads % self.num_kv_heads:
            reason = f"must divide num_heads {self.num_heads}"
            raise SettingError("num_kv_heads", self.num_kv_heads, reason)
        if self.layers and len(self.layers) != self.num_layers:
            raise SettingError("num_layers", self.num_layers, f"has {len(self.layers)} layers")

    @property
    def all_layers(self) -> tuple[Layer, ...]:
        """Each decoder layer, in order."""
        if self.layers:
            return self.layers
        attention = Attention(
            self.num_heads,
            self.num_kv_heads,
            self.head_dim,
            self.head_dim,
            qkv_bias=self.attention_bias,
            qk_norm_parameters=2 * self.head_dim if self.qk_norm else 0,
        )
        layer = Layer(attention, MLP(self.intermediate_size), 2 * self.hidden_size)
        return (layer,) * self.num_layers

    @property
    def linear_parameters_per_layer(self) -> int:
        """Weights of one layer's matrix multiplications that a token passes, mean of the layers.

        Of a mixture of experts these are the active ones.
        """
        linear = (w for _, w in self._layer_weights() if w.linear)
        return sum(w.active_parameters for w in linear) // self.num_layers

    @property
    def embedding_parameters(self) -> int:
        """One vocabulary matrix."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All weights, embeddings, head and vision tower included, multi-token prediction not."""
        return sum(w.parameters for _, w in self._weights() if w.part != "mtp")

    @property
    def active_parameters(self) -> int:
        """Weights that a text token passes, embedding and head included.

        Of the experts the chosen ones; nothing of a vision or audio tower.
        """
        apart = ("mtp", "vision tower", "audio tower")
        return sum(w.active_parameters for _, w in self._weights() if w.part not in apart)

    def expected_active_experts(self, tokens: int) -> float:
        """Distinct routed experts per MoE layer that `tokens` tokens reach, routed uniformly.

        0 for a dense model; the mean where MoE layers differ.
        """
        moes = [m for layer in self.all_layers if layer.mlp and (m := layer.mlp.experts)]
        reached = (m.expected_active(tokens) for m in moes)
        return sum(reached) / len(moes) if moes else 0.0

    def weight_parts(self, dtype: str, tp: int = 1, dp: int = 1) -> tuple[WeightPart, ...]:
        """The weights by part, in the order of the forward pass.

        Routed experts are split over all `tp` · `dp` ranks, the rest over `tp` (vLLM `-dp` with
        `-ep`).

        `dtype` is that of every weight, or, of a quantised checkpoint, of those that it leaves
        unquantised (its own 16-bit type where `dtype` is narrower).
        """
        totals: dict[str, list[int]] = {}
        for index, weights in self._weights():
            if weights.parameters:
                sums = totals.setdefault(weights.part, [0, 0])
                sums[0] += weights.parameters
                ranks = tp * dp if weights.part == "experts" else tp
                sums[1] += self._rank_bytes(index, weights, dtype, ranks)
        return tuple(WeightPart(p, n, b, loaded=p != "mtp") for p, (n, b) in totals.items())

    def weight_bytes(self, dtype: str, tp: int = 1, dp: int = 1) -> int:
        """Bytes of weights on one of `tp` · `dp` ranks, multi-token prediction not included."""
        return sum(part.rank_bytes for part in self.weight_parts(dtype, tp, dp) if part.loaded)

    def splits_over(self, tp: int) -> bool:
        """Whether `tp` ranks share every layer evenly, each KV head whole."""
        mixers = {layer.mixer for layer in self.all_layers}
        return all(mixer is None or mixer.splits_over(tp) for mixer in mixers)

    def kv_heads_per_rank(self, tp: int = 1) -> int:
        """KV heads on one rank; replicated when there are more ranks than heads."""
        return max(1, self.num_kv_heads // tp)

    def kv_layers(self, kv_dtype: str, tp: int = 1) -> tuple[KVLayers, ...]:
        """The caches of all layers on one of `tp` ranks, like ones counted together."""
        counts: dict[KVLayers, int] = {}
        for layer in self.all_layers:
            for cache in layer.mixer.caches(kv_dtype, tp) if layer.mixer else ():
                counts[cache] = counts.get(cache, 0) + cache.num_layers
        return tuple(cache._replace(num_layers=count) for cache, count in counts.items())

    def kv_bytes_per_token(self, dtype: str, tp: int = 1) -> int:
        """Bytes of K and V of one token over all layers, on one rank.

        As if layers with a window kept every token; recurrent layers keep none.
        """
        return sum(k.num_layers * k.bytes_per_token for k in self.kv_layers(dtype, tp))

    def _weights(self) -> Iterator[tuple[int | None, Weights]]:
        """Every module, with the number of its layer."""
        table = self.embedding_parameters
        yield None, Weights("embedding", "embed_tokens", table, linear=False)
        yield from self._layer_weights()
        yield None, Weights("norms", "norm", self.hidden_size, 1, linear=False)
        if not self.tied_embeddings:
            yield None, Weights("head", "lm_head", table)
        for weights in self.extra:
            yield None, weights

    def _layer_weights(self) -> Iterator[tuple[int, Weights]]:
        for index, layer in enumerate(self.all_layers):
            for weights in layer.weights(self.hidden_size):
                yield index, weights

    def _rank_bytes(self, index: int | None, weights: Weights, dtype: str, tp: int) -> int:
        count = weights.on_one_rank(tp)
        if self.quantisation is None:
            return bytes_of(count, DTYPE_BYTES[dtype])
        return bytes_of(count, self.quantisation.bytes_per_weight(index, weights, dtype))
