"""Qwen3-Next, 3.5 and 3.6: Gated DeltaNet, and gated full attention in every fourth layer."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.recurrent import Recurrent, gated_delta_net
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
)
_KINDS = ("full_attention", "linear_attention")


def read(config: Config) -> ModelSpec:
    """Kinds of layers from `layer_types`, else every `full_attention_interval`-th is full."""
    gate = config.flag("attn_output_gate", default=True)
    bias = config.flag("attention_bias", default=False)
    attention = decoder.with_head_norms(decoder.attention(config, qkv_bias=bias))
    full = replace(attention, output_gate=gate)
    recurrent = _recurrent(config)
    half: MLP | MoE = _experts(config) if config.has("num_experts") else decoder.mlp(config)
    norms = 2 * decoder.hidden_size(config)
    layers = [Layer(full if is_full else recurrent, half, norms) for is_full in _full(config)]
    names = ("intermediate_size", "moe_intermediate_size")
    widths = decoder.Widths.of(full, config.whole(*names))
    last = Layer(full, half, norms)
    extra = decoder.mtp(config, last, len(layers), "mtp_num_hidden_layers")
    return decoder.model(config, layers, widths, tied=False, extra=extra)


def _experts(config: Config) -> MoE:
    return decoder.moe(config, shared_gate=True)


def _full(config: Config) -> list[bool]:
    if config.has("layer_types"):
        return [kind == "full_attention" for kind in decoder.layer_types(config, _KINDS)]
    step = config.whole("full_attention_interval", default=4)
    return [(index + 1) % step == 0 for index in range(config.layers())]


def _recurrent(config: Config) -> Recurrent:
    """The state is in the model's 16-bit type unless `mamba_ssm_dtype` says more (Qwen3.5)."""
    keys = config.whole("linear_num_key_heads"), config.whole("linear_key_head_dim")
    values = config.whole("linear_num_value_heads"), config.whole("linear_value_head_dim")
    if values[0] % keys[0]:
        raise config.error("linear_num_value_heads", f"is no multiple of {keys[0]} key heads")
    kernel = config.whole("linear_conv_kernel_dim", at_most=1024)
    state = decoder.state_bytes(config, "mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return gated_delta_net(decoder.hidden_size(config), keys, values, kernel, state)
