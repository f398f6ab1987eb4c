"""What one rank computes in a step: matrix products, and the element-wise kernels between them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from servesim.deployment import Deployment
from servesim.errors import SettingError
from servesim.model.attention import Attention
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE

ACTIVATION_BYTES = 2
# kernels of about nothing take 1.8-2.8 µs in LLMServingSim's profiles (norm, activation, rotary of
# one token on RTX PRO 6000 and RTX 4090); a CUDA graph adds about half a microsecond in between
LAUNCH_US = 2.5
# sampler there: 25 µs for 1 row of 128,256 logits, 118 µs for 192; on a GPU of 1,792 GB/s
SAMPLER_US = 20.0
SAMPLER_BYTES_PER_LOGIT = 7


class Product(NamedTuple):
    """One matrix product of every step: tokens × k by n × k weights."""

    name: str
    n: int
    k: int
    quantised: bool = True


class Heads(NamedTuple):
    """The attention call of a layer, as one rank sees it; window 0 is none."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int


@dataclass(frozen=True)
class ElementWise:
    """Kernels that read and write activations."""

    launches: int = 0
    bytes_per_token: int = 0

    def __add__(self, other: "ElementWise") -> "ElementWise":
        launches = self.launches + other.launches
        return ElementWise(launches, self.bytes_per_token + other.bytes_per_token)

    def times(self, count: int) -> "ElementWise":
        """That of so many layers."""
        return ElementWise(count * self.launches, count * self.bytes_per_token)

    def us(self, tokens: float, gb_per_s: float) -> float:
        """A launch each, and bytes over bandwidth."""
        return self.launches * LAUNCH_US + tokens * self.bytes_per_token / (1e3 * gb_per_s)


@dataclass(frozen=True)
class Shapes:
    """A step of a model on one rank.

    Attributes:
        products: with how often a step runs each; the head is not among them.
        attention: calls, with how many layers have each.
        moe: routed experts, with how many layers have them.
        element_wise: all of a step.
        head: of the sampled rows.
        layers: decoder layers.
    """

    products: Counter[Product]
    attention: Counter[Heads]
    moe: Counter[MoE]
    element_wise: ElementWise
    head: Product
    layers: int


def shapes_of(deployment: Deployment) -> Shapes:
    """The shapes of `deployment`.

    Raises:
        SettingError: a layer is of a kind that the tables do not hold.
    """
    model, tp = deployment.model, deployment.tp
    products: Counter[Product] = Counter()
    attention: Counter[Heads] = Counter()
    moe: Counter[MoE] = Counter()
    # embedding: a row read and written; final norm: like any other
    total = ElementWise(1, 2 * ACTIVATION_BYTES * model.hidden_size) + _norm(model.hidden_size)
    for layer, count in Counter(model.all_layers).items():
        mixer = _attention_of(layer, model.name)
        for product in _products(mixer, layer.mlp, model.hidden_size, tp):
            products[product] += count
        kv_heads = mixer.kv_heads_per_rank(tp)
        heads = Heads(mixer.num_heads // tp, kv_heads, mixer.head_dim, mixer.window_tokens or 0)
        attention[heads] += count
        if isinstance(layer.mlp, MoE):
            moe[layer.mlp] += count
        total += _between(mixer, layer.mlp, model.hidden_size, tp).times(count)
    head = Product("lm_head", -(-model.vocab_size // tp), model.hidden_size, quantised=False)
    return Shapes(products, attention, moe, total, head, model.num_layers)


def _attention_of(layer: Layer, model: str) -> Attention:
    mixer = layer.mixer
    if not isinstance(mixer, Attention) or layer.mlp is None:
        raise SettingError("model", model, "has a layer that is not attention and an MLP: no table")
    if mixer.head_dim != mixer.v_head_dim:
        raise SettingError("model", model, "has value heads of another width: no table")
    if isinstance(layer.mlp, MoE) and layer.mlp.latent_size is not None:
        raise SettingError("model", model, "has experts in a latent space: no table")
    return mixer


def _products(mixer: Attention, mlp: MLP | MoE | None, hidden: int, tp: int) -> Iterator[Product]:
    """Q, K and V are one product, and so are gate and up (vLLM and SGLang)."""
    heads, kv_heads = mixer.num_heads // tp, mixer.kv_heads_per_rank(tp)
    queries = heads * (2 if mixer.output_gate else 1)
    yield Product("qkv_proj", (queries + 2 * kv_heads) * mixer.head_dim, hidden)
    yield Product("o_proj", hidden, heads * mixer.head_dim)
    if isinstance(mlp, MoE):
        yield Product("router", mlp.num_experts, hidden, quantised=False)
    for width in _dense_widths(mlp):
        yield Product("gate_up_proj", (2 if mlp and mlp.gated else 1) * width // tp, hidden)
        yield Product("down_proj", hidden, width // tp)


def _dense_widths(mlp: MLP | MoE | None) -> list[int]:
    if isinstance(mlp, MoE):
        return [width for width in (mlp.shared_size, mlp.dense_size) if width]
    return [mlp.intermediate_size] if mlp else []


def _between(mixer: Attention, mlp: MLP | MoE | None, hidden: int, tp: int) -> ElementWise:
    """Element-wise kernels of a layer in a compiled graph.

    Additions are fused into the norms, the norms of q and k are one kernel, rotary embedding is
    another; quantisation of activations is in the tables of the products. Routed experts are
    measured from alignment to the sum over them: softmax and top-k before, and the addition of
    shared experts after them, are kernels of their own.
    """
    qk = (mixer.num_heads // tp + mixer.kv_heads_per_rank(tp)) * mixer.head_dim
    qk_norm = ElementWise(1, 2 * ACTIVATION_BYTES * qk) if mixer.qk_norm_parameters else None
    total = _norm(hidden).times(2) + ElementWise(1, 2 * ACTIVATION_BYTES * qk)
    total += qk_norm or ElementWise()
    for width in _dense_widths(mlp):
        total += ElementWise(1, 3 * ACTIVATION_BYTES * width // tp)
    if isinstance(mlp, MoE):
        total += ElementWise(1, ACTIVATION_BYTES * mlp.num_experts)
        if mlp.shared_size or mlp.dense_size:
            total += ElementWise(1, 3 * ACTIVATION_BYTES * hidden)
    return total


def _norm(hidden: int) -> ElementWise:
    """Reads the activation and the residual, writes both."""
    return ElementWise(1, 4 * ACTIVATION_BYTES * hidden)
