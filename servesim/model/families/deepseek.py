"""Latent attention with a mixture of experts: DeepSeek V2 to V3.2, Kimi K2, GLM-5."""

from servesim.model import decoder
from servesim.model.attention import Indexer, LatentAttention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.spec import ModelSpec

MODEL_TYPES = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "glm_moe_dsa",
    "glm4_moe_lite",
)


def latent_attention(config: Config) -> LatentAttention:
    """The latent's widths, and an indexer where `index_topk` says that attention is sparse."""
    q_rank = config.maybe("q_lora_rank")
    indexer = None
    if config.has("index_topk"):
        heads, width = config.whole("index_n_heads"), config.whole("index_head_dim")
        picked = config.whole("index_topk")
        indexer = Indexer(heads, width, config.whole("q_lora_rank"), picked=picked)
    return LatentAttention(
        config.whole("num_attention_heads"),
        config.whole("kv_lora_rank"),
        config.whole("qk_rope_head_dim"),
        config.whole("qk_nope_head_dim"),
        config.whole("v_head_dim"),
        q_rank,
        indexer,
    )


def read(config: Config) -> ModelSpec:
    """The first layers are dense; a router with a correction bias from V3 on."""
    mixer = latent_attention(config)
    corrected = config.text("topk_method", "noaux_tc") == "noaux_tc"
    experts: MoE = decoder.moe(config, router_bias=int(corrected))
    sparse = decoder.sparse_layers(config)
    dense: MLP | MoE = experts if all(sparse) else decoder.mlp(config)
    hidden = decoder.hidden_size(config)
    layers = [Layer(mixer, experts if moe else dense, 2 * hidden) for moe in sparse]
    width = config.whole("intermediate_size", default=experts.intermediate_size)
    widths = decoder.Widths.of(mixer, width)
    extra = decoder.mtp(config, Layer(mixer, experts, 2 * hidden), len(layers))
    return decoder.model(config, layers, widths, tied=False, extra=extra)
