"""Gemma 1 to 4: windows between global layers, four norms per layer, tied embeddings.

Gemma 4's global layers have heads of their own and, where `attention_k_eq_v`, no value projection;
K (normalised, rotated) and V are still cached apart. The small ones embed each token once per
layer (`hidden_size_per_layer_input`), and their last layers share the cache of earlier ones.
"""

from collections.abc import Iterator
from dataclasses import replace

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
)
# transformers' defaults, which the published files of Gemma 3 rely on
_GEMMA3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
}


def read(config: Config) -> ModelSpec:
    """Windows by `layer_types`, else every second (Gemma 2) or all but each sixth (3, 4) layer."""
    kind = config.text("model_type").removesuffix("_text")
    if kind == "gemma3":
        config = config.over(_GEMMA3)
    mixer = decoder.attention(config)
    if kind in ("gemma3", "gemma4"):
        mixer = decoder.with_head_norms(mixer)
    wide = _global(config, mixer) if kind == "gemma4" else mixer
    windows = decoder.windows(config, _windowed(config, kind))
    shared = config.whole("num_kv_shared_layers", default=0, at_least=0)
    first_shared = len(windows) - shared
    layers = []
    for index, window in enumerate(windows):
        owner = wide if window is None else replace(mixer, window_tokens=window)
        own = replace(owner, owns_kv=index < first_shared)
        layers.append(_layer(config, kind, own))
    widths = decoder.Widths.of(wide, config.whole("intermediate_size"))
    extra = _per_layer_embedding(config)
    return decoder.model(config, layers, widths, tied=True, extra=extra)


def _windowed(config: Config, kind: str) -> list[bool]:
    count = config.layers()
    if kind == "gemma":
        return [False] * count
    step = config.whole("sliding_window_pattern", default=2 if kind == "gemma2" else 6)
    return [(index + 1) % step != 0 for index in range(count)]


def _global(config: Config, mixer: Attention) -> Attention:
    width = config.whole("global_head_dim", default=mixer.head_dim)
    kv_heads = config.whole("num_global_key_value_heads", default=mixer.num_kv_heads)
    if mixer.num_heads % kv_heads:
        raise config.error("num_global_key_value_heads", f"must divide {mixer.num_heads} heads")
    shared = config.flag("attention_k_eq_v", default=False)
    return decoder.with_head_norms(
        Attention(mixer.num_heads, kv_heads, width, width, shared_kv_projection=shared)
    )


def _layer(config: Config, kind: str, mixer: Attention) -> Layer:
    hidden = decoder.hidden_size(config)
    norms = 2 if kind == "gemma" else 4
    size = config.whole("intermediate_size")
    if config.flag("use_double_wide_mlp", default=False) and not mixer.owns_kv:
        size *= 2
    mlp: MLP | MoE = MLP(size)
    if config.flag("enable_moe_block", default=False):
        experts = config.whole("num_experts")
        chosen = config.whole("top_k_experts", at_most=experts)
        width = config.whole("moe_intermediate_size", "expert_intermediate_size")
        # a scale per expert and one per hidden channel
        mlp = MoE(experts, chosen, width, dense_size=size, router_bias=1, router_extra=hidden)
        norms += 3
    return Layer(mixer, mlp, norms * hidden, tuple(_per_layer_gate(config)))


def _per_layer_gate(config: Config) -> Iterator[Weights]:
    width = config.whole("hidden_size_per_layer_input", default=0, at_least=0)
    if width:
        hidden = decoder.hidden_size(config)
        part = "per-layer embedding"
        yield Weights(part, "per_layer_projection", 2 * hidden * width, 1)
        yield Weights("norms", "per_layer_norm", hidden, 1, linear=False)


def _per_layer_embedding(config: Config) -> Iterator[Weights]:
    width = config.whole("hidden_size_per_layer_input", default=0, at_least=0)
    if width:
        part = "per-layer embedding"
        rows = config.whole("vocab_size_per_layer_input", "vocab_size")
        columns = width * config.layers()
        yield Weights(part, "embed_tokens_per_layer", rows * columns, linear=False, active=columns)
        hidden = decoder.hidden_size(config)
        yield Weights(part, "per_layer_model_projection", hidden * columns, 1)
        yield Weights("norms", "per_layer_projection_norm", width, 1, linear=False)
