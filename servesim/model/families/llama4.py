"""Llama 4: chunked attention in three of four layers, one routed and one shared expert."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("llama4", "llama4_text")
_GLOBAL_EVERY = 4  # layers without rotary positions attend to everything


def read(config: Config) -> ModelSpec:
    """Experts in every `interleave_moe_layer_step`-th layer, else a wider MLP."""
    mixer = decoder.attention(config)
    experts = decoder.moe(config)
    experts = replace(experts, shared_size=experts.intermediate_size)
    step = config.whole("interleave_moe_layer_step", default=1)
    dense = MLP(config.whole("intermediate_size_mlp", "intermediate_size"))
    norms = 2 * decoder.hidden_size(config)
    layers = []
    for index, window in enumerate(decoder.windows(config, _chunked(config))):
        half = experts if (index + 1) % step == 0 else dense
        layers.append(Layer(replace(mixer, window_tokens=window), half, norms))
    widths = decoder.Widths.of(mixer, experts.intermediate_size)
    return decoder.model(config, layers, widths, tied=False)


def _chunked(config: Config) -> list[bool]:
    if config.has("no_rope_layers") and config.keys["no_rope_layers"] != []:
        return [rope != 0 for rope in config.list_of("no_rope_layers", int, config.layers())]
    return [(index + 1) % _GLOBAL_EVERY != 0 for index in range(config.layers())]
