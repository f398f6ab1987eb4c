"""MiMo-V2: full and window layers with KV heads of their own, K wider than V."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("mimo_v2_flash", "mimo_v2")


def read(config: Config) -> ModelSpec:
    """A 1 in `hybrid_layer_pattern` is a window, in `moe_layer_freq` a mixture of experts."""
    full = _attention(config, "", None)
    window = config.whole("sliding_window", "sliding_window_size")
    local = _attention(config, "swa_", window)
    count = config.layers()
    kinds = config.list_of("hybrid_layer_pattern", int, count)
    experts = decoder.moe(config, router_bias=1)
    dense, norms = decoder.mlp(config), 2 * decoder.hidden_size(config)
    layers = [
        Layer(local if kind else full, experts if sparse else dense, norms)
        for kind, sparse in zip(kinds, decoder.sparse_layers(config), strict=True)
    ]
    widths = decoder.Widths.of(full, dense.intermediate_size)
    return decoder.model(config, layers, widths, tied=False)


def _attention(config: Config, prefix: str, window: int | None) -> Attention:
    heads = config.whole(f"{prefix}num_attention_heads", "num_attention_heads")
    key = f"{prefix}num_key_value_heads"
    kv_heads = config.whole(key, "num_key_value_heads")
    if heads % kv_heads:
        raise config.error(key, f"must divide {heads} heads")
    width = config.whole(f"{prefix}head_dim", "head_dim")
    values = config.whole(f"{prefix}v_head_dim", "v_head_dim", default=width)
    sinks = f"add_{'swa' if prefix else 'full'}_attention_sink_bias"
    mixer = Attention(heads, kv_heads, width, values, window)
    return replace(mixer, sinks=config.flag(sinks, default=False))
