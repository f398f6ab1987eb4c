"""GPT-2, OPT, BLOOM, Falcon and their like: LayerNorm with biases, an MLP of two matrices."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "falcon",
    "RefinedWeb",
    "RefinedWebModel",
    "phi",
    "starcoder2",
)


@dataclass(frozen=True, slots=True)
class _Traits:
    """What sets one of them apart.

    Attributes:
        bias: whether projections have biases.
        norms: LayerNorms per layer.
        tied: whether head and embedding are one matrix.
        positions: whether positions are embedded.
        head_bias: whether the head has a bias per token of the vocabulary.
    """

    bias: bool = True
    norms: int = 2
    tied: bool = True
    positions: bool = False
    head_bias: bool = False


_TRAITS = {
    "gpt2": _Traits(positions=True),
    "gpt_bigcode": _Traits(positions=True),
    "gpt_neox": _Traits(tied=False),
    "gptj": _Traits(norms=1, tied=False, head_bias=True),
    "opt": _Traits(positions=True),
    "bloom": _Traits(),
    "phi": _Traits(norms=1, tied=False, head_bias=True),
    "starcoder2": _Traits(),
}


def read(config: Config) -> ModelSpec:
    """By the traits of the model type; Falcon says its own."""
    kind = config.text("model_type")
    falcon = kind in ("falcon", "RefinedWeb", "RefinedWebModel")
    if not falcon and kind not in _TRAITS:  # an inner configuration under one of these types
        raise config.error("model_type", f"must be one of {', '.join(MODEL_TYPES)} here")
    traits = _falcon(config) if falcon else _TRAITS[kind]
    hidden = decoder.hidden_size(config)
    names = ("num_hidden_layers", "n_layer", "n_layers")
    mixer = _attention(config, kind, traits, falcon=falcon)
    width = config.whole(
        "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", default=4 * hidden
    )
    mlp = MLP(width, gated=False, bias=traits.bias and kind != "falcon")
    window = config.maybe("sliding_window")  # StarCoder2
    if window is not None and window < decoder.longest_context(config):
        mixer = replace(mixer, window_tokens=window)
    layer = Layer(mixer, mlp, 2 * traits.norms * hidden)
    layers = (layer,) * config.layers(*names)
    widths = decoder.Widths.of(mixer, width)
    extra = _extra(config, kind, traits, hidden)
    return decoder.model(config, layers, widths, tied=traits.tied, extra=extra)


def _falcon(config: Config) -> _Traits:
    bias = config.flag("bias", default=False)
    grouped = config.flag("new_decoder_architecture", default=False)
    parallel = config.flag("parallel_attn", default=True)
    norms = 2 if grouped or not parallel else 1
    norms = config.whole("num_ln_in_parallel_attn", default=norms, at_most=2)
    return _Traits(bias=bias, norms=norms)


def _attention(config: Config, kind: str, traits: _Traits, *, falcon: bool) -> Attention:
    heads = config.whole("num_attention_heads", "n_head", "num_heads")
    kv_heads = config.whole("num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads)
    single = falcon or kind == "gpt_bigcode"
    if single and not config.flag("new_decoder_architecture", default=False):
        kv_heads = 1 if config.flag("multi_query", default=True) else heads
    if heads % kv_heads:
        key = "num_kv_heads" if falcon else "num_key_value_heads"
        raise config.error(key, f"must divide {heads} heads")
    head_dim = decoder.divided(config, decoder.hidden_size(config), heads)
    bias = traits.bias and kind != "gptj"
    return Attention(heads, kv_heads, head_dim, head_dim, qkv_bias=bias, o_bias=bias)


def _extra(config: Config, kind: str, traits: _Traits, hidden: int) -> Iterator[Weights]:
    yield Weights("norms", "norm.bias", hidden, 1, linear=False)
    if kind == "bloom":
        yield Weights("norms", "word_embeddings_layernorm", 2 * hidden, 1, linear=False)
    if traits.positions:
        rows = decoder.longest_context(config) + (2 if kind == "opt" else 0)  # OPT: offset of 2
        yield Weights("position embedding", "positions", rows * hidden, 1, linear=False)
    if traits.head_bias:
        yield Weights("head", "lm_head.bias", config.whole("vocab_size"), linear=False)
