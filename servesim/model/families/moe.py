"""Grouped-query attention with a mixture of experts: Mixtral, Qwen MoE, GLM-4.5, MiniMax-M2."""

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_vl_moe",
    "qwen3_vl_moe_text",
    "glm4_moe",
    "minimax_m2",
    "olmoe",
)


def read(config: Config) -> ModelSpec:
    """Which layers are mixtures follows from the family's own key."""
    kind = config.text("model_type").removesuffix("_text")
    mixer = _attention(config, kind)
    router_bias = int(kind in ("glm4_moe", "minimax_m2"))
    experts = decoder.moe(config, shared_gate=kind == "qwen2_moe", router_bias=router_bias)
    hidden = decoder.hidden_size(config)
    sparse = _sparse(config, kind)
    dense = experts if all(sparse) else decoder.mlp(config)
    layers = [Layer(mixer, experts if moe else dense, 2 * hidden) for moe in sparse]
    width = config.whole("intermediate_size", default=experts.intermediate_size)
    widths = decoder.Widths.of(mixer, width)
    return decoder.model(
        config, layers, widths, tied=False, extra=decoder.mtp(config, layers[-1], len(layers))
    )


def _attention(config: Config, kind: str) -> Attention:
    bias = config.flag("attention_bias", "qkv_bias", default=kind == "qwen2_moe")
    mixer = decoder.attention(config, qkv_bias=bias)
    if kind.startswith("qwen3"):
        return decoder.with_head_norms(mixer)
    if kind == "glm4_moe":
        on = config.flag("use_qk_norm", default=False)
        return decoder.with_head_norms(mixer) if on else mixer
    if kind == "minimax_m2":
        return decoder.with_width_norms(mixer)
    return decoder.with_width_norms(mixer) if kind == "olmoe" else mixer


def _sparse(config: Config, kind: str) -> list[bool]:
    if kind == "glm4_moe":
        return decoder.sparse_layers(config)
    count = config.layers()
    dense = config.list_of("mlp_only_layers", int) if config.has("mlp_only_layers") else []
    step = config.whole("decoder_sparse_step", default=1)
    return [index not in dense and (index + 1) % step == 0 for index in range(count)]
