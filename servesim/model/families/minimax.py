"""MiniMax-Text-01 and M1: lightning attention, softmax attention in every eighth layer."""

from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.recurrent import lightning
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("minimax", "minimax_text_01", "minimax_m1")
_KINDS = ("full_attention", "linear_attention")


def read(config: Config) -> ModelSpec:
    """A 1 in `attn_type_list` is softmax attention."""
    full = decoder.attention(config)
    hidden = decoder.hidden_size(config)
    state = decoder.state_bytes(config, "mamba_ssm_cache_dtype")
    linear = lightning(hidden, full.num_heads, full.head_dim, state)
    experts = decoder.moe(config)
    layers = [Layer(full if softmax else linear, experts, 2 * hidden) for softmax in _full(config)]
    widths = decoder.Widths.of(full, experts.intermediate_size)
    return decoder.model(config, layers, widths, tied=False)


def _full(config: Config) -> list[bool]:
    if config.has("attn_type_list"):
        return [kind == 1 for kind in config.list_of("attn_type_list", int, config.layers())]
    return [kind == "full_attention" for kind in decoder.layer_types(config, _KINDS)]
