"""What a model's weights and its KV cache consist of, as sizes are explained."""

from typing import NamedTuple

ANY_NUMBER = 1 << 30  # shards: split over however many ranks there are


class Weights(NamedTuple):
    """The parameters of one module (or of like modules) of one layer.

    Attributes:
        part: the part of the model that it is counted under, e.g. "experts".
        module: its name in the checkpoint, below the layer, e.g. "self_attn.q_proj".
        parameters: all of them.
        shards: ranks that can each hold a different piece; 1 is replicated on every rank.
        linear: whether it is a matrix multiplication, which is what quantisation acts on.
        active: parameters that one token passes; None is all.
    """

    part: str
    module: str
    parameters: int
    shards: int = ANY_NUMBER
    linear: bool = True
    active: int | None = None

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes."""
        return self.parameters if self.active is None else self.active

    def on_one_rank(self, tp: int) -> int:
        """Parameters on the fullest of `tp` ranks."""
        return -(-self.parameters // min(tp, self.shards))


class WeightPart(NamedTuple):
    """One line of the weights of a model.

    Attributes:
        name: e.g. "embedding", "attention", "mlp", "experts", "router", "norms", "mtp".
        parameters: of all ranks together.
        rank_bytes: bytes on one rank.
        loaded: whether it counts towards `weight_bytes`; the layers of multi-token prediction
            ("mtp") are loaded only for speculation.
    """

    name: str
    parameters: int
    rank_bytes: int
    loaded: bool = True


class KVLayers(NamedTuple):
    """Layers of one kind, as the KV cache sees them.

    Attributes:
        kind: "full attention", "sliding window", "latent" (MLA), "indexer", "compressed" or
            "recurrent".
        num_layers: layers of this kind; a layer that keeps two caches is in two kinds.
        bytes_per_token: K and V (or the latent) of one token in one layer on one rank, rounded
            up where several tokens share a slot; 0 for recurrent layers.
        window_tokens: tokens that a request keeps at most; None is all of them.
        state_bytes: of one request in one layer on one rank (recurrent state and convolution);
            0 for attention.
    """

    kind: str
    num_layers: int
    bytes_per_token: int
    window_tokens: int | None
    state_bytes: int
