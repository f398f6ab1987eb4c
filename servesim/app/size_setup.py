"""From the configuration of `servesim size` to a budget."""

from dataclasses import dataclass, replace

from omegaconf import DictConfig

from servesim import checks
from servesim.app.setup import make, not_chosen
from servesim.app.size_settings import MEASURED, Asked, asked_of, check_settings
from servesim.deployment import Deployment
from servesim.errors import SettingError
from servesim.kv.budget import Draft, KVBudget
from servesim.kv.capacity import KVSettings
from servesim.kv.startup_log import StartUp
from servesim.model.dtypes import DTYPE_BYTES, kv_dtype_of
from servesim.model.from_hf import from_hf
from servesim.model.parts import KVLayers, WeightPart
from servesim.model.spec import ModelSpec
from servesim.model.state_dtype import with_state_dtype
from servesim.scheduler.kv_budget import CacheOf, EngineBudget
from servesim.scheduler.sizing import EngineMemory


@dataclass(frozen=True, slots=True)
class Sizing:
    """Everything that the answer is made of.

    Attributes:
        deployment: what is served on what.
        dp: data-parallel ranks, each with its own attention and cache and a share of the experts.
        weights: of one GPU, by part, without a drafter's.
        caches: of all layers on one rank, those of a drafter included.
        draft: what a drafter adds.
        settings: of the cache, measured terms filled in.
        measured: names of the terms that were given.
        derived: how the engine divides memory, blocks and the terms they come from.
        max_model_len: longest context, tokens.
        asked: about which requests.
    """

    deployment: Deployment
    dp: int
    weights: tuple[WeightPart, ...]
    caches: tuple[KVLayers, ...]
    draft: Draft
    settings: KVSettings
    measured: frozenset[str]
    derived: EngineBudget
    max_model_len: int
    asked: Asked

    @property
    def engine(self) -> EngineMemory:
        """How the engine divides memory."""
        return self.derived.engine

    @property
    def budget(self) -> KVBudget:
        """Blocks and the terms they come from."""
        return self.derived.budget

    @property
    def start_up(self) -> StartUp:
        """What the engine logs of."""
        latent = any(cache.kind == "latent" for cache in self.caches)
        budget = self.budget
        return StartUp(
            budget.num_gpu_blocks,
            budget.layout,
            self.max_model_len,
            budget.kv_bytes_per_token,
            self.deployment.kv_dtype,
            latent,
        )

    @property
    def blocks_for_requests(self) -> int:
        """Blocks that requests can hold."""
        return self.budget.num_gpu_blocks - self.engine.rules.null_block


def sizing_of(cfg: DictConfig) -> Sizing:
    """Work out the budget that a composed configuration asks for.

    Raises:
        ServesimError: one line that names the setting.
    """
    check_settings(cfg)
    asked, deployment = asked_of(cfg.size), _deployment(cfg)
    model = deployment.model
    longest = cfg.max_model_len or model.max_position_embeddings
    draft = _draft(cfg, deployment)
    settings: KVSettings = make(cfg, "kv")
    measured = _measured(cfg.size, settings)
    parts = model.weight_parts(deployment.dtype, deployment.tp, deployment.dp)
    settings = _filled(settings, measured)
    drafts = cfg.size.num_speculative_tokens
    profile = make(cfg, "scheduler")
    derived = CacheOf(profile, settings, deployment, longest, draft, drafts).derive()
    return Sizing(
        deployment,
        deployment.dp,
        tuple(part for part in parts if part.loaded),
        (*model.kv_layers(deployment.kv_dtype, deployment.tp), *draft.caches),
        draft,
        settings,
        frozenset(measured),
        derived,
        longest,
        asked,
    )


def _deployment(cfg: DictConfig) -> Deployment:
    checks.choice("dtype", cfg.dtype, tuple(DTYPE_BYTES))
    kv_dtype = kv_dtype_of(cfg.kv_dtype, cfg.dtype)
    model = _model(cfg)
    if cfg.size.mamba_ssm_cache_dtype is not None:
        model = with_state_dtype(model, cfg.size.mamba_ssm_cache_dtype)
    return Deployment(model, make(cfg, "hardware"), cfg.tp, cfg.dtype, kv_dtype, dp=cfg.dp)


def _model(cfg: DictConfig) -> ModelSpec:
    if cfg.hf_config is None:
        if cfg.get("model") is None:
            raise not_chosen("model")
        model: ModelSpec = make(cfg, "model")
        return model
    checks.text("hf_config", cfg.hf_config)
    if cfg.get("model") is not None:
        reason = f"model is given, too ({cfg.model.get('name')}); give one of the two"
        raise SettingError("hf_config", cfg.hf_config, reason)
    return from_hf(cfg.hf_config)


def _draft(cfg: DictConfig, deployment: Deployment) -> Draft:
    """Of a draft model, and of attention layers that a drafter has beside the model's own."""
    dtype, kv_dtype, tp = deployment.dtype, deployment.kv_dtype, deployment.tp
    weights = 0
    caches: tuple[KVLayers, ...] = ()
    if cfg.get("draft") is not None:
        drafter: ModelSpec = make(cfg, "draft")
        weights, caches = drafter.weight_bytes(dtype, tp), drafter.kv_layers(kv_dtype, tp)
    layers = cfg.size.draft_layers
    if not layers:
        return Draft(weights, caches)
    own = deployment.model.kv_layers(kv_dtype, tp)
    whole = [c for c in own if c.kind in ("full attention", "latent")]
    if not whole:
        reason = f"{deployment.model.name} has no attention over the whole context"
        raise SettingError("size.draft_layers", layers, f"{reason}; nearest: 0")
    parts = deployment.model.weight_parts(dtype, tp)
    weights += sum(part.rank_bytes for part in parts if not part.loaded)
    return Draft(weights, (*caches, whole[0]._replace(num_layers=layers)))


def _measured(size: DictConfig, settings: KVSettings) -> dict[str, float]:
    """Terms that were given, in `size:` or where a simulation has them.

    Raises:
        SettingError: in both places, and they differ.
    """
    given = {name: size[name] for name in MEASURED}
    for name, value in given.items():
        other = getattr(settings, name)
        if value is None:
            given[name] = other
        elif other not in (None, value):
            reason = f"kv.{name} is given, too ({other:g}); give one of the two"
            raise SettingError(f"size.{name}", value, reason)
    return {name: value for name, value in given.items() if value is not None}


def _filled(settings: KVSettings, sizes: dict[str, float]) -> KVSettings:
    """Settings with the terms that were measured.

    Raises:
        SettingError: they do not go together.
    """
    try:
        return replace(settings, **sizes)  # type: ignore[arg-type]
    except SettingError as error:
        raise error.within("kv") from None
