"""gpt-oss: windows in every other layer, sinks, experts with biases."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("gpt_oss",)


def read(config: Config) -> ModelSpec:
    """Without `layer_types` the first layer has the window."""
    bias = config.flag("attention_bias", default=True)
    mixer = replace(decoder.attention(config, qkv_bias=bias, o_bias=bias), sinks=True)
    experts = replace(decoder.moe(config, router_bias=1), bias=True)
    norms = 2 * decoder.hidden_size(config)
    alternating = [index % 2 == 0 for index in range(config.layers())]
    layers = [
        Layer(replace(mixer, window_tokens=window), experts, norms)
        for window in decoder.windows(config, alternating)
    ]
    widths = decoder.Widths.of(mixer, experts.intermediate_size)
    return decoder.model(config, layers, widths, tied=False)
