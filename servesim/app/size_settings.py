"""The settings of `servesim size`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError
from servesim.kv.budget import TERMS

FORMATS = ("table", "json")
SETTINGS = (
    *("model", "hf_config", "draft", "hardware", "scheduler", "kv", "size", "output"),
    *("tp", "dp", "dtype", "kv_dtype", "gpu_memory_utilization", "max_model_len"),
)
MEASURED = ("weights_gib", "kv_cache_gib", *TERMS)
_LAYOUT = ("num_speculative_tokens", "mamba_ssm_cache_dtype")
_STATE_DTYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class Asked:
    """What of `size:` is asked about, checked.

    Attributes:
        prompt_tokens: of a request.
        output_tokens: of its reply.
        num_requests: requests at a time; None asks about none.
        shared_prefix_tokens: that prompts begin with alike; None asks about none.
        kv_cache_tokens: as the engine logged them; None where it is not known.
        kv_bytes_per_token: as somebody counted them, on one rank; None where nobody did.
        draft_layers: attention layers of an EAGLE or MTP drafter.
    """

    prompt_tokens: int
    output_tokens: int
    num_requests: int | None
    shared_prefix_tokens: int | None
    kv_cache_tokens: int | None
    kv_bytes_per_token: float | None
    draft_layers: int


def check_settings(cfg: DictConfig) -> None:
    """Refuse what is no setting, and what a setting cannot have.

    Raises:
        ServesimError: one line that names the setting.
    """
    for node in ("size", "output", "kv"):
        if not isinstance(cfg.get(node), DictConfig):
            raise SettingError(node, cfg.get(node), "has settings of its own and cannot be one")
    known: Any = OmegaConf.to_container(cfg, resolve=False)
    _refuse_unknown("setting", known, SETTINGS)
    _refuse_unknown("setting of size", known["size"], (*Asked.__slots__, *MEASURED, *_LAYOUT))
    _refuse_unknown("setting of output", known["output"], ("format",))
    checks.choice("output.format", cfg.output.format, FORMATS)
    checks.whole("dp", cfg.dp, at_least=1)
    if cfg.max_model_len is not None:
        checks.whole("max_model_len", cfg.max_model_len, at_least=2)
    if cfg.gpu_memory_utilization is not None:
        checks.fraction("gpu_memory_utilization", cfg.gpu_memory_utilization, open_at_zero=True)
    for name in MEASURED:
        if cfg.size[name] is not None:
            checks.size_gib(f"size.{name}", cfg.size[name])


def _refuse_unknown(what: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """A key may have been added with `+`."""
    for name in given:
        if name not in known:
            raise UnknownChoiceError(what, name, known)


def asked_of(size: DictConfig) -> Asked:
    """What `size:` asks about.

    Raises:
        ServesimError: one line that names the setting.
    """
    checks.whole("size.prompt_tokens", size.prompt_tokens, at_least=1)
    checks.whole("size.output_tokens", size.output_tokens, at_least=1)
    checks.whole("size.draft_layers", size.draft_layers)
    for name in ("num_requests", "shared_prefix_tokens", "kv_cache_tokens"):
        if size[name] is not None:
            checks.whole(f"size.{name}", size[name], at_least=1)
    if size.kv_bytes_per_token is not None:
        checks.positive("size.kv_bytes_per_token", size.kv_bytes_per_token)
    if size.num_speculative_tokens is not None:
        checks.whole("size.num_speculative_tokens", size.num_speculative_tokens)
    if size.mamba_ssm_cache_dtype is not None:
        checks.choice("size.mamba_ssm_cache_dtype", size.mamba_ssm_cache_dtype, _STATE_DTYPES)
    return Asked(*(size[name] for name in Asked.__slots__))
