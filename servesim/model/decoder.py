"""The parts of a decoder under the key names that most configurations share.

Families take what fits them from here and say what differs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from servesim.model.attention import Attention, LatentAttention
from servesim.model.config import MOST_EXPERTS, Config
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.parts import Weights
from servesim.model.spec import ModelSpec

FULL = ("full_attention", "full", "global", "attention")
MOST_MTP_LAYERS = 16
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN_KEYS = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
)
WINDOWED = ("sliding_attention", "chunked_attention", "sliding", "local")


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths that a model is known by; those of its full attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int

    @classmethod
    def of(cls, mixer: Attention | LatentAttention, intermediate_size: int) -> "Widths":
        """Of attention; a latent is one KV head of its slot's width."""
        if isinstance(mixer, LatentAttention):
            width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            return cls(mixer.num_heads, 1, width, intermediate_size)
        return cls(mixer.num_heads, mixer.num_kv_heads, mixer.head_dim, intermediate_size)


def model(
    config: Config,
    layers: Sequence[Layer],
    widths: Widths,
    *,
    tied: bool,
    extra: Iterable[Weights] = (),
    vocab_size: int | None = None,
) -> ModelSpec:
    """The model of these layers; `tied` is what the family assumes where the key is absent."""
    return ModelSpec(
        name=config.file,
        num_layers=len(layers),
        hidden_size=hidden_size(config),
        num_heads=widths.num_heads,
        num_kv_heads=widths.num_kv_heads,
        head_dim=widths.head_dim,
        intermediate_size=widths.intermediate_size,
        vocab_size=config.whole("vocab_size", default=vocab_size),
        tied_embeddings=config.flag("tie_word_embeddings", default=tied),
        max_position_embeddings=longest_context(config),
        layers=tuple(layers),
        extra=tuple(extra),
    )


def hidden_size(config: Config) -> int:
    """Width of the residual stream."""
    return config.whole("hidden_size", "n_embd", "d_model", at_most=10_000_000)


def longest_context(config: Config) -> int:
    """Tokens that the positions reach; ALiBi states none, so what it was trained on or 2048."""
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    return config.whole(*names, default=2048)


def attention(config: Config, *, qkv_bias: bool = False, o_bias: bool = False) -> Attention:
    """Heads as the configuration gives them; head_dim is derived only where it is absent."""
    heads = config.whole("num_attention_heads", "n_head", "num_heads")
    kv_heads = config.whole("num_key_value_heads", "num_kv_heads", default=heads)
    if heads % kv_heads:
        key = "num_key_value_heads" if config.has("num_key_value_heads") else "num_kv_heads"
        raise config.error(key, f"must divide the {heads} query heads")
    head_dim = config.maybe("head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None:
        head_dim = divided(config, hidden_size(config), heads)
    return Attention(heads, kv_heads, head_dim, head_dim, qkv_bias=qkv_bias, o_bias=o_bias)


def divided(config: Config, width: int, heads: int) -> int:
    """Width of a head where none is given."""
    if width % heads:
        raise config.error(
            "head_dim", f"is missing, and hidden_size {width} is no multiple of {heads} heads"
        )
    return width // heads


def with_head_norms(mixer: Attention) -> Attention:
    """The same with q and k normalised per head."""
    return replace(mixer, qk_norm_parameters=2 * mixer.head_dim)


def with_width_norms(mixer: Attention) -> Attention:
    """The same with q and k normalised over all their heads."""
    width = (mixer.num_heads + mixer.num_kv_heads) * mixer.head_dim
    return replace(mixer, qk_norm_parameters=width)


def windows(config: Config, default: Sequence[bool] | None = None) -> list[int | None]:
    """Window of each layer, None for full attention.

    Which layers have one is in `layer_types`, else as the family's `default` says, else in
    `sliding_window_pattern`, else all. `use_sliding_window` false turns a window off that is set,
    and one beyond the longest context is none (Phi-3 128k publishes 262144).
    """
    count = config.layers()
    size = config.maybe("sliding_window", "attention_chunk_size")
    off = not config.flag("use_sliding_window", default=True)
    if size is None or off or size >= longest_context(config):
        return [None] * count
    if config.has("layer_types"):
        windowed = [kind in WINDOWED for kind in layer_types(config, (*FULL, *WINDOWED))]
    else:
        windowed = list(default) if default is not None else _pattern(config, count)
    return [size if has else None for has in windowed]


def _pattern(config: Config, count: int) -> list[bool]:
    """`sliding_window_pattern`: every n-th layer is global, or a letter (L, G) per layer."""
    key = "sliding_window_pattern"
    if isinstance(config.keys.get(key), str):
        letters = config.text(key)
        if not letters or set(letters) - {"L", "G"}:
            raise config.error(key, "must be a number, or L and G")
        return [letters[index % len(letters)] == "L" for index in range(count)]
    step = config.maybe(key)
    return [step is None or (index + 1) % step != 0 for index in range(count)]


def layer_types(config: Config, known: Sequence[str]) -> list[str]:
    """`layer_types`, each of them known."""
    kinds = config.list_of("layer_types", str, config.layers())
    for kind in kinds:
        if kind not in known:
            raise config.error("layer_types", f"'{kind}' is none of {', '.join(known)}")
    return kinds


def mlp(config: Config, *, gated: bool = True, bias: bool = False) -> MLP:
    """A dense MLP."""
    return MLP(config.whole("intermediate_size", at_most=100_000_000), gated, bias)


def moe(config: Config, *, shared_gate: bool = False, router_bias: int = 0) -> MoE:
    """Routed experts, and shared ones where the configuration has some."""
    experts = config.whole(*EXPERT_KEYS, at_most=MOST_EXPERTS)
    chosen = config.whole(*CHOSEN_KEYS, at_most=MOST_EXPERTS)
    if chosen > experts:
        raise config.error(CHOSEN_KEYS[0], f"is more than there are experts ({experts})")
    width = config.whole("moe_intermediate_size", "intermediate_size", at_most=100_000_000)
    shared = config.maybe("shared_expert_intermediate_size", "shared_intermediate_size", at_least=0)
    if shared is None:
        number = config.maybe(
            "n_shared_experts",
            "num_shared_experts",
            "moe_num_shared_experts",
            at_least=0,
            at_most=MOST_EXPERTS,
        )
        shared = (number or 0) * width
    return MoE(
        experts,
        chosen,
        width,
        shared,
        router_bias=router_bias,
        shared_gate=shared_gate and shared > 0,
    )


def sparse_layers(config: Config) -> list[bool]:
    """Which layers are mixtures: from `first_k_dense_replace` on, every `moe_layer_freq`-th."""
    count = config.layers()
    if config.has("mlp_layer_types"):
        return [kind == "sparse" for kind in config.list_of("mlp_layer_types", str, count)]
    if isinstance(config.keys.get("moe_layer_freq"), list):
        return [bool(item) for item in config.list_of("moe_layer_freq", int, count)]
    first = config.whole("first_k_dense_replace", default=0, at_least=0)
    step = config.whole("moe_layer_freq", default=1)
    return [index >= first and index % step == 0 for index in range(count)]


def mtp(config: Config, layer: Layer, index: int, *names: str) -> list[Weights]:
    """Layers of multi-token prediction like `layer`, numbered from `index`; none by default.

    `names` are the keys of their number.
    """
    keys = names or ("num_nextn_predict_layers",)
    more = config.whole(*keys, default=0, at_least=0, at_most=MOST_MTP_LAYERS)
    return [w for i in range(more) for w in as_mtp(config, layer, index + i)]


def as_mtp(config: Config, layer: Layer, index: int) -> list[Weights]:
    """A layer of multi-token prediction, and what joins it to the decoder.

    It predicts from the hidden state and the next token's embedding: a projection of both, their
    norms and one after the layer (DeepSeek-V3 report, 2.2); embedding and head are the model's.
    """
    hidden = hidden_size(config)
    name = f"layers.{index}"
    inside = [w._replace(part="mtp", module=f"{name}.{w.module}") for w in layer.weights(hidden)]
    joins = Weights("mtp", f"{name}.eh_proj", 2 * hidden * hidden, 1)
    norms = Weights("mtp", f"{name}.norms", 3 * hidden, 1, linear=False)
    return [*inside, joins, norms]


def state_bytes(config: Config, *names: str) -> int:
    """Bytes per element of a recurrent state; 2, as of the model, where none of `names` is set."""
    for key in names:
        if config.has(key) and config.text(key) != "auto":
            known = {"float32": 4, "float16": 2, "bfloat16": 2}
            if config.text(key) not in known:
                raise config.error(key, f"is none of {', '.join(known)}")
            return known[config.text(key)]
    return 2
