"""Llama-like dense decoders: grouped-query attention, gated MLP, RMSNorm."""

from dataclasses import replace

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "llama",
    "mistral",
    "ministral",
    "ministral3",
    "mistral3",
    "phi3",
    "phi4",
    "mimo",
    "qwen2",
    "qwen2_5",
    "qwen2_vl",
    "qwen2_vl_text",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen3",
    "qwen3_vl",
    "qwen3_vl_text",
    "internlm2",
    "internlm3",
    "granite",
    "smollm3",
    "yi",
    "seed_oss",
    "aquila",
    "exaone4",
    "glm",
    "glm4",
    "olmo2",
    "olmo3",
    "cohere",
    "cohere2",
)
_ALWAYS_BIASED = ("qwen2", "qwen2_5", "qwen2_vl", "qwen2_5_vl")
_BIAS_NOT_ON_OUTPUT = ("mimo", "seed_oss", "glm", "glm4")
_TIED = ("qwen2_vl", "smollm3", "cohere", "cohere2")
# norms per layer, where not two: GLM-4-0414 has them after both halves too, Command R one
_NORMS = {"glm4": 4, "cohere": 1, "cohere2": 1}


def read(config: Config) -> ModelSpec:
    """Biases and norms by model type, windows where they are in use."""
    kind = config.text("model_type").removesuffix("_text")
    mixer = _attention(config, kind)
    dense = decoder.mlp(config, bias=config.flag("mlp_bias", default=False))
    norms = _NORMS.get(kind, 2) * decoder.hidden_size(config)
    layers = [
        Layer(replace(mixer, window_tokens=window), dense, norms)
        for window in _windows(config, kind)
    ]
    widths = decoder.Widths.of(mixer, dense.intermediate_size)
    tied, extra = kind in _TIED, decoder.mtp(config, layers[-1], len(layers))
    return decoder.model(config, layers, widths, tied=tied, extra=extra)


def _attention(config: Config, kind: str) -> Attention:
    apart = kind in _BIAS_NOT_ON_OUTPUT
    bias = config.flag("attention_bias", "qkv_bias", default=apart) or kind in _ALWAYS_BIASED
    o_bias = bias and not apart and kind not in _ALWAYS_BIASED
    mixer = decoder.attention(config, qkv_bias=bias, o_bias=o_bias)
    if kind.startswith("qwen3") or kind == "exaone4":
        return decoder.with_head_norms(mixer)
    widely = kind in ("olmo2", "olmo3") or config.flag("use_qk_norm", default=False)
    return decoder.with_width_norms(mixer) if widely else mixer


def _windows(config: Config, kind: str) -> list[int | None]:
    """Qwen's windows are off unless `use_sliding_window`, and begin at `max_window_layers`."""
    if not kind.startswith("qwen"):
        return decoder.windows(config)
    if not config.flag("use_sliding_window", default=False):
        return [None] * config.layers()
    first = config.whole("max_window_layers", default=0, at_least=0)
    return decoder.windows(config, [index >= first for index in range(config.layers())])
