"""Nemotron-H, Nano v2, Nemotron 3: each layer is Mamba-2, attention, an MLP or experts."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import MOST_LAYERS, Config
from servesim.model.layer import Layer
from servesim.model.mlp import MoE
from servesim.model.parts import Weights
from servesim.model.recurrent import Mamba2Widths, Recurrent, mamba2
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("nemotron_h", "nemotron_h_puzzle")
_NAMES = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def read(config: Config) -> ModelSpec:
    """One letter of `hybrid_override_pattern` per layer: M, *, - or E."""
    pattern = _pattern(config)
    if len(pattern) != config.layers():
        reason = f"has {len(pattern)} layers, num_hidden_layers {config.layers()}"
        raise config.error("hybrid_override_pattern", reason)
    kinds = {letter: _layer(config, letter) for letter in dict.fromkeys(pattern)}
    layers = [kinds[letter] for letter in pattern]
    names = ("intermediate_size", "moe_intermediate_size")
    width = config.whole(*names)
    attention = decoder.attention(config)
    widths = decoder.Widths.of(attention, width)
    return decoder.model(config, layers, widths, tied=False, extra=_mtp(config, len(layers)))


def _pattern(config: Config) -> str:
    if config.has("layers_block_type"):
        kinds = config.list_of("layers_block_type", str)
        unknown = [kind for kind in kinds if kind not in _NAMES]
        if unknown:
            raise config.error("layers_block_type", f"'{unknown[0]:.30}' is none of {list(_NAMES)}")
        return "".join(_NAMES[kind] for kind in kinds)
    return _letters(config, "hybrid_override_pattern")


def _letters(config: Config, key: str) -> str:
    pattern = config.text(key)
    if not pattern or len(pattern) > MOST_LAYERS or set(pattern) - set(_NAMES.values()):
        raise config.error(key, f"must have a letter per layer, of {' '.join(_NAMES.values())}")
    return pattern


def _layer(config: Config, letter: str) -> Layer:
    hidden = decoder.hidden_size(config)
    if letter == "M":
        return Layer(_mamba(config), None, hidden)
    if letter == "*":
        return Layer(_attention(config), None, hidden)
    if letter == "-":
        bias = config.flag("mlp_bias", default=False)
        return Layer(None, decoder.mlp(config, gated=False, bias=bias), hidden)
    return Layer(None, _experts(config), hidden)


def _attention(config: Config) -> Attention:
    bias = config.flag("attention_bias", default=False)
    return decoder.attention(config, qkv_bias=bias, o_bias=bias)


def _experts(config: Config) -> MoE:
    """ReLU² experts of two matrices, in a latent of `moe_latent_size` where there is one."""
    experts = decoder.moe(config, router_bias=1)
    number = config.whole("n_shared_experts", default=0, at_least=0)
    width = config.whole("moe_shared_expert_intermediate_size", default=experts.intermediate_size)
    latent = config.maybe("moe_latent_size")
    return replace(experts, shared_size=number * width, gated=False, latent_size=latent)


def _mamba(config: Config) -> Recurrent:
    """The state is in the model's 16-bit type unless `mamba_ssm_cache_dtype` says more."""
    widths = Mamba2Widths(
        config.whole("mamba_num_heads"),
        config.whole("mamba_head_dim"),
        config.whole("n_groups", "mamba_n_groups"),
        config.whole("ssm_state_size", "mamba_d_state"),
        config.whole("conv_kernel", "mamba_d_conv", at_most=1024),
        config.flag("use_conv_bias", default=True),
        config.flag("mamba_proj_bias", default=False),
    )
    state = decoder.state_bytes(config, "mamba_ssm_cache_dtype")
    return mamba2(decoder.hidden_size(config), widths, state)


def _mtp(config: Config, count: int) -> list[Weights]:
    more = config.whole(
        "num_nextn_predict_layers", default=0, at_least=0, at_most=decoder.MOST_MTP_LAYERS
    )
    if not more:
        return []
    key = "mtp_hybrid_override_pattern"
    pattern = _letters(config, key) if config.has(key) else "*"
    extra: list[Weights] = []
    for index in range(more):
        first, *rest = (_layer(config, letter) for letter in pattern)
        extra += decoder.as_mtp(config, first, count + index)
        for layer in rest:
            inside = layer.weights(decoder.hidden_size(config))
            extra += [w._replace(part="mtp", module=f"mtp.{w.module}") for w in inside]
    return extra
