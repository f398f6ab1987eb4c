"""Work of one rank's kernels by kind of layer: which bytes they move and how much they multiply.

Matrices: a step reads every matrix once, of routed experts those that its tokens reach if each
token chooses uniformly, and multiplies the active parameters of each token. Only matrices count;
norms, biases and convolutions are a thousandth of the bytes.

Attention over a cache reads each sequence's keys and values once for all of its new tokens.

* Grouped-query attention: q·k and scores·v for each head.
* Latent attention of decodes works on the latent itself, the up projections absorbed into query
  and output: a head's q·k is as wide as latent and rotary key, its scores·v as the latent. The
  absorbed projections are the parameters of `kv_b_proj` again, counted with the matrices. Of
  prefill chunks keys and values are expanded: narrower products, but the past is expanded, too
  (DeepSeek-V2 report, 2.1.2; vLLM 0.11 v1/attention/backends/mla/common.py has both forms).
  With an indexer both are absorbed, over the tokens that it picks.
* A recurrent layer reads and writes its state once per sequence and step, and per token decays,
  updates and reads it out.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from servesim.cost.bounds import FLOPS_PER_MAC, MATMULS_OF_ATTENTION
from servesim.deployment import Deployment
from servesim.model.attention import Attention, LatentAttention
from servesim.model.compressed import CompressedAttention
from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.layer import Mixer
from servesim.model.mlp import MLP
from servesim.model.parts import Weights
from servesim.model.recurrent import Recurrent
from servesim.model.spec import ModelSpec

# the delta rule retrieves by the key, adds an outer product and reads out by the query (Gated
# DeltaNet, arXiv 2412.06464, eq. 10); Mamba-2 and lightning attention do without the first
MACS_PER_STATE_ELEMENT = 3


class Matrices(NamedTuple):
    """Matrices that are multiplied at one rate and read to one extent.

    Attributes:
        missed_by_token: chance that a token does not reach a given expert; 0 where all is read.
        quantised: whether the checkpoint has them in its narrow format.
        num_bytes: on the rank.
        macs: multiply-adds of one token on the rank.
    """

    missed_by_token: float
    quantised: bool
    num_bytes: float
    macs: float


class KVCall(NamedTuple):
    """Attention over caches of one kind, all layers together.

    Attributes:
        flops: per key that a token of a decode attends to.
        num_bytes: read per token of context.
        most_keys: that a token attends to; None is all.
        chunk_share: FLOPs per key of a prefill chunk's token, relative to `flops`.
        past_share: FLOPs to expand a token of a chunk's past, relative to `flops`.
    """

    flops: float
    num_bytes: int
    most_keys: int | None = None
    chunk_share: float = 1
    past_share: float = 0


class StateCall(NamedTuple):
    """Recurrent layers of one kind, all together: FLOPs per token, bytes per sequence."""

    flops: float
    num_bytes: int


def matrices(deployment: Deployment) -> list[Matrices]:
    """All matrices of the layers, on one rank."""
    model, tp, dtype = deployment.model, deployment.tp, deployment.dtype
    plain = _is_plain(model)
    counts: dict[tuple[float, float, int], list[int]] = {}
    for index, layer in enumerate(model.all_layers):
        experts = layer.mlp.experts if layer.mlp is not None else None
        for weights in layer.weights(model.hidden_size):
            if not weights.linear:
                continue
            routed = experts is not None and weights.active is not None
            missed = experts.missed_by_one_token if experts is not None and routed else 0.0
            size = bytes_per_weight(model, index, weights, dtype)
            # a plain model counts as split evenly even where more ranks than KV heads repeat the
            # K and V projections, so that its step times stay those of earlier releases
            ranks = tp if plain else min(tp, weights.shards)
            sums = counts.setdefault((missed, size, ranks), [0, 0])
            sums[0] += weights.parameters
            sums[1] += weights.active_parameters
    found: dict[tuple[float, bool], Matrices] = {}
    for (missed, size, ranks), (held, active) in counts.items():
        key = missed, model.quantisation is not None and size < DTYPE_BYTES["bf16"]
        sofar = found.get(key, Matrices(*key, 0.0, 0.0))
        num_bytes, macs = sofar.num_bytes + held / ranks * size, sofar.macs + active / ranks
        found[key] = Matrices(*key, num_bytes, macs)
    return list(found.values())


def bytes_per_weight(model: ModelSpec, layer: int | None, weights: Weights, dtype: str) -> float:
    """Of a module, its share of the scales included."""
    if model.quantisation is None:
        return DTYPE_BYTES[dtype]
    return float(model.quantisation.bytes_per_weight(layer, weights, dtype))


def head_bytes(deployment: Deployment) -> float:
    """Bytes per weight of the output head, which may be the embedding."""
    model = deployment.model
    module = Weights(
        "head", "lm_head", model.embedding_parameters, linear=not model.tied_embeddings
    )
    return bytes_per_weight(model, None, module, deployment.dtype)


def kv_calls(deployment: Deployment) -> list[KVCall]:
    """Attention over every cache that grows with the context."""
    return [
        call._replace(flops=call.flops * layers, num_bytes=call.num_bytes * layers)
        for mixer, layers in _mixers(deployment.model).items()
        for call in _calls(mixer, deployment.kv_dtype, deployment.tp)
    ]


def state_calls(deployment: Deployment) -> list[StateCall]:
    """Every recurrent layer."""
    calls, tp = [], deployment.tp
    for mixer, layers in _mixers(deployment.model).items():
        if isinstance(mixer, Recurrent):
            state = sum(c.state_bytes for c in mixer.caches(deployment.kv_dtype, tp))
            flops = FLOPS_PER_MAC * MACS_PER_STATE_ELEMENT * mixer.state_elements / tp
            calls.append(StateCall(layers * flops, layers * 2 * state))
    return calls


def _mixers(model: ModelSpec) -> Counter[Mixer]:
    return Counter(layer.mixer for layer in model.all_layers if layer.mixer is not None)


def _is_plain(model: ModelSpec) -> bool:
    """Whether every layer is full attention and a dense MLP, in the dtype of the deployment."""
    return model.quantisation is None and all(
        isinstance(layer.mixer, Attention)
        and layer.mixer.window_tokens is None
        and isinstance(layer.mlp, MLP)
        for layer in model.all_layers
    )


def _calls(mixer: Mixer, kv_dtype: str, tp: int) -> Iterator[KVCall]:
    if isinstance(mixer, Attention):
        widths = mixer.head_dim + mixer.v_head_dim
        # a layer without a cache of its own reads an earlier one's
        (cache,) = replace(mixer, owns_kv=True).caches(kv_dtype, tp)
        flops = FLOPS_PER_MAC * (mixer.num_heads // tp) * widths
        yield KVCall(flops, cache.bytes_per_token, mixer.window_tokens)
    elif isinstance(mixer, LatentAttention):
        yield from _latent(mixer, kv_dtype, tp)
    elif isinstance(mixer, CompressedAttention):
        yield from _compressed(mixer, kv_dtype, tp)


def _latent(mixer: LatentAttention, kv_dtype: str, tp: int) -> Iterator[KVCall]:
    per_head = FLOPS_PER_MAC * (mixer.num_heads // tp)
    rank, rope = mixer.kv_lora_rank, mixer.qk_rope_head_dim
    nope, value = mixer.qk_nope_head_dim, mixer.v_head_dim
    absorbed = per_head * (2 * rank + rope)
    size = mixer.slot_bytes(kv_dtype)
    if mixer.indexer is None:
        chunk_share = per_head * (nope + rope + value) / absorbed
        past_share = per_head * rank * (nope + value) / absorbed
        yield KVCall(absorbed, size, None, chunk_share, past_share)
        return
    indexer = mixer.indexer
    yield KVCall(absorbed, size, indexer.picked)
    yield KVCall(FLOPS_PER_MAC * indexer.num_heads * indexer.head_dim, indexer.key_bytes)


def _compressed(mixer: CompressedAttention, kv_dtype: str, tp: int) -> Iterator[KVCall]:
    """The window's tokens, compressed entries and their index keys; per token of context."""
    flops = FLOPS_PER_MAC * MATMULS_OF_ATTENTION * (mixer.num_heads // tp) * mixer.head_dim
    indexer, ratio = mixer.indexer, mixer.ratio
    for cache in mixer.caches(kv_dtype, tp):
        if cache.kind == "indexer" and indexer is not None:
            index_flops = FLOPS_PER_MAC * indexer.num_heads * indexer.head_dim
            yield KVCall(index_flops / ratio, cache.bytes_per_token)
        elif cache.kind == "compressed":
            picked = None if indexer is None or indexer.picked is None else indexer.picked * ratio
            yield KVCall(flops / ratio, cache.bytes_per_token, picked)
        else:
            yield KVCall(flops, cache.bytes_per_token, cache.window_tokens)
