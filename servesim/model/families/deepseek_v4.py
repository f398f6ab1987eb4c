"""DeepSeek-V4: compressed attention, hyper-connections, experts in every layer."""

from servesim.model import decoder
from servesim.model.attention import Indexer
from servesim.model.compressed import CompressedAttention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("deepseek_v4",)
ARCHITECTURES = ("DeepseekV4ForCausalLM",)
_INDEXED_UP_TO = 4  # tokens per entry: finer ones are searched with an indexer, coarser read whole


def read(config: Config) -> ModelSpec:
    """`compress_ratios` has an entry per layer, those of multi-token prediction last."""
    count = config.layers()
    ratios = config.list_of("compress_ratios", int, count)
    if any(ratio < 0 for ratio in ratios):
        raise config.error("compress_ratios", "must hold 0 or more")
    experts = decoder.moe(config, router_bias=1)
    hidden = decoder.hidden_size(config)
    connections = tuple(_hyper_connections(config, hidden))
    layers = [
        Layer(_attention(config, ratio), experts, 2 * hidden, connections) for ratio in ratios
    ]
    heads, width = config.whole("num_attention_heads"), config.whole("head_dim")
    widths = decoder.Widths(heads, 1, width, experts.intermediate_size)
    extra = decoder.mtp(
        config, Layer(_attention(config, 0), experts, 2 * hidden, connections), count
    )
    return decoder.model(config, layers, widths, tied=False, extra=extra)


def _attention(config: Config, ratio: int) -> CompressedAttention:
    rank = config.whole("q_lora_rank")
    indexer = None
    if 0 < ratio <= _INDEXED_UP_TO:
        heads, width = config.whole("index_n_heads"), config.whole("index_head_dim")
        picked = config.maybe("index_topk")
        indexer = Indexer(heads, width, rank, with_key=False, picked=picked)
    head_dim = config.whole("head_dim")
    rope = config.whole("qk_rope_head_dim", at_most=head_dim)
    return CompressedAttention(
        config.whole("num_attention_heads"),
        head_dim,
        rope,
        rank,
        config.whole("o_lora_rank"),
        config.whole("o_groups"),
        config.whole("sliding_window"),
        ratio,
        indexer,
    )


def _hyper_connections(config: Config, hidden: int) -> list[Weights]:
    """Around attention and around the experts: mixes of `hc_mult` residual streams."""
    streams = config.whole("hc_mult", default=0, at_least=0, at_most=1024)
    mixes = (2 + streams) * streams
    one = mixes * streams * hidden + mixes + 3
    return [Weights("hyper-connections", "hc", 2 * one, 1, linear=False)] if streams else []
