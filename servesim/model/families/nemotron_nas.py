"""Models pruned layer by layer (Nemotron-Super, DeciLM): `block_configs` says what is left."""

from servesim.model import decoder
from servesim.model.attention import Attention
from servesim.model.config import Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec

MODEL_TYPES = ("nemotron-nas", "deci")
ARCHITECTURES = ("DeciLMForCausalLM",)
_WIDTH_STEP = 256  # the MLP's width is rounded up to it (configuration_decilm.py)


def read(config: Config) -> ModelSpec:
    """A block may keep attention, of its own group size, and an MLP of its own width."""
    heads = config.whole("num_attention_heads")
    blocks = config.list_of("block_configs", dict, config.layers())
    layers = [_layer(config.within(b, f"block_configs[{i}]"), config) for i, b in enumerate(blocks)]
    attending = [layer.mixer for layer in layers if isinstance(layer.mixer, Attention)]
    widest = max((m.num_kv_heads for m in attending), default=heads)
    mlps = [layer.mlp.intermediate_size for layer in layers if layer.mlp is not None]
    head_dim = decoder.divided(config, decoder.hidden_size(config), heads)
    widths = decoder.Widths(heads, widest, head_dim, max(mlps, default=1))
    return decoder.model(config, layers, widths, tied=False)


def _layer(block: Config, config: Config) -> Layer:
    hidden = decoder.hidden_size(config)
    attention, ffn = block.inner("attention"), block.inner("ffn")
    if attention is None or ffn is None:
        raise block.error("attention" if attention is None else "ffn", "is missing")
    mixer, mlp = _attention(attention, config), _mlp(ffn, hidden)
    linear = [
        Weights("attention" if part is attention else "mlp", "linear", hidden * hidden)
        for part in (attention, ffn)
        if part.flag("replace_with_linear", default=False)
    ]
    norms = (mixer is not None) + (mlp is not None) + len(linear)
    return Layer(mixer, mlp, norms * hidden, tuple(linear))


def _attention(block: Config, config: Config) -> Attention | None:
    if _absent(block):
        return None
    heads = config.whole("num_attention_heads")
    group = block.whole("n_heads_in_group")
    if heads % group:
        raise block.error("n_heads_in_group", f"must divide {heads} heads")
    head_dim = decoder.divided(config, decoder.hidden_size(config), heads)
    window = block.maybe("window_length")
    bias = config.flag("attention_bias", default=False)
    return Attention(heads, heads // group, head_dim, head_dim, window, bias, bias)


def _mlp(block: Config, hidden: int) -> MLP | None:
    if _absent(block):
        return None
    width = int(2 * block.ratio("ffn_mult") * hidden / 3)
    return MLP(-(-width // _WIDTH_STEP) * _WIDTH_STEP)


def _absent(block: Config) -> bool:
    return block.flag("no_op", default=False) or block.flag("replace_with_linear", default=False)
