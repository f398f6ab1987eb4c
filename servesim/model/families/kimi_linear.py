"""Kimi Linear and K3: Kimi Delta Attention, and a latent in every fourth layer."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.families.deepseek import latent_attention
from servesim.model.layer import Layer
from servesim.model.mlp import MoE
from servesim.model.recurrent import Recurrent, kimi_delta
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("kimi_linear", "kimi_k3")


def read(config: Config) -> ModelSpec:
    """`linear_attn_config` lists the layers of each kind, counted from 1."""
    gate = config.flag("mla_use_output_gate", default=False)
    latent = replace(latent_attention(config), output_gate=gate)
    linear = config.inner("linear_attn_config")
    if linear is None:
        raise config.error("linear_attn_config", "is missing")
    full = set(linear.list_of("full_attn_layers", int))
    delta = _delta(config, linear)
    experts, dense = _experts(config), decoder.mlp(config)
    norms = 2 * decoder.hidden_size(config)
    layers = [
        Layer(latent if index + 1 in full else delta, experts if sparse else dense, norms)
        for index, sparse in enumerate(decoder.sparse_layers(config))
    ]
    widths = decoder.Widths.of(latent, dense.intermediate_size)
    return decoder.model(config, layers, widths, tied=False)


def _delta(config: Config, linear: Config) -> Recurrent:
    return kimi_delta(
        decoder.hidden_size(config),
        linear.whole("num_heads"),
        linear.whole("head_dim"),
        linear.whole("short_conv_kernel_size", at_most=1024),
        linear.flag("use_full_rank_gate", default=False),
    )


def _experts(config: Config) -> MoE:
    """K3's routed experts work in a narrower space."""
    return replace(
        decoder.moe(config, router_bias=1),
        latent_size=config.maybe("routed_expert_hidden_size"),
        latent_norm=config.flag("latent_moe_use_norm", default=False),
    )
