"""An architecture that no family knows: what the common keys say, and what they leave open."""

from dataclasses import replace

from servesim.errors import ModelConfigError
from servesim.model import decoder
from servesim.model.config import Config
from servesim.model.families import deepseek
from servesim.model.layer import Layer
from servesim.model.spec import ModelSpec

# keys of layers whose cache is none that is counted here
_OTHER_CACHES = (
    "mamba",
    "ssm_",
    "state_size",
    "linear_attn",
    "linear_num",
    "lightning",
    "recurrent",
    "rwkv",
    "hybrid",
    "compress",
    "attn_type_list",
    "is_encoder_decoder",
    "encoder_layers",
    "num_encoder_layers",
)
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_UNSET: tuple[object, ...] = (None, False, 0, [], {}, "")
# say nothing about sizes
_HARMLESS = (
    "_id",
    "_ids",
    "dropout",
    "drop",
    "eps",
    "epsilon",
    "_range",
    "activation",
    "_act",
    "use_cache",
    "version",
    "rope",
    "rotary",
    "loss",
    "jitter",
    "architectures",
    "auto_map",
    "dtype",
    "_name_or_path",
    "task_specific_params",
    "_coef",
    "_scale",
    "scaling_factor",
)


def read(config: Config) -> ModelSpec:
    """Best effort from the common keys, with a note; refused where a key says it would be wrong.

    Raises:
        ModelConfigError: a key is missing, or names a cache that is not understood.
    """
    kind = config.text("model_type") or "(none)"
    _refuse_other_caches(config, kind)
    if not config.has("num_hidden_layers") and config.has("tokenizer_class"):
        raise ModelConfigError(config.file, "is a tokenizer's configuration, not a model's")
    listed = config.list_of("architectures", str) if config.has("architectures") else []
    if listed and not any(name.endswith(_GENERATES) for name in listed):
        raise config.error("architectures", "is no language model that generates")
    config.layers()
    spec = deepseek.read(config) if config.has("kv_lora_rank") else _grouped(config)
    unread = [key for key in config.keys if key not in config.used and not _harmless(key)]
    for key in unread:
        if "expert" in str(key) and config.keys[key] not in _UNSET:
            raise config.error(str(key), f"is not understood for the unknown model_type {kind}")
    note = (
        f"model_type {kind} is not known: sized as a gated decoder from "
        f"{', '.join(sorted(k for k in config.used if config.keys.get(k) is not None))}"
    )
    more = (f"not understood: {', '.join(sorted(map(str, unread)))}",) if unread else ()
    return replace(spec, notes=(note, *more))


def _refuse_other_caches(config: Config, kind: str) -> None:
    for key, value in config.keys.items():
        if value not in _UNSET and str(key).startswith(_OTHER_CACHES):
            raise config.error(str(key), f"is not understood for the unknown model_type {kind}")


def _harmless(key: object) -> bool:
    return any(part in str(key) for part in _HARMLESS)


def _grouped(config: Config) -> ModelSpec:
    """Grouped-query attention, dense or with experts from a stated layer on."""
    mixer = decoder.attention(
        config, qkv_bias=config.flag("attention_bias", "qkv_bias", default=False)
    )
    hidden = decoder.hidden_size(config)
    if any(config.has(key) for key in decoder.EXPERT_KEYS):
        experts = decoder.moe(config)
        sparse = decoder.sparse_layers(config)
        dense = experts if all(sparse) else decoder.mlp(config)
        halves = [experts if moe else dense for moe in sparse]
        width = experts.intermediate_size
    else:
        dense = decoder.mlp(config)
        halves = [dense] * config.layers()
        width = dense.intermediate_size
    layers = [
        Layer(replace(mixer, window_tokens=window), half, 2 * hidden)
        for half, window in zip(halves, decoder.windows(config), strict=True)
    ]
    return decoder.model(config, layers, decoder.Widths.of(mixer, width), tied=False)
