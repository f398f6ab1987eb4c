"""From the configuration of `servesim size` to a budget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from servesim import checks
from servesim.app.setup import make, not_chosen
from servesim.app.size_settings import MEASURED, Asked, asked_of, check_settings
from servesim.deployment import Deployment
from servesim.errors import SettingError
from servesim.kv.capacity import TERMS, Draft, KVBudget, KVSettings
from servesim.kv.startup_log import StartUp
from servesim.model.dtypes import DTYPE_BYTES, KV_DTYPES
from servesim.model.from_hf import from_hf
from servesim.model.parts import KVLayers, WeightPart
from servesim.model.spec import ModelSpec
from servesim.model.state_dtype import with_state_dtype
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.scheduler.sizing_rules import engine_memory
from servesim.units import gib, gib_to_bytes


@dataclass(frozen=True, slots=True)
class Sizing:
    """Everything that the answer is made of.

    Attributes:
        deployment: what is served on what.
        dp: data-parallel ranks, each with its own attention and cache and a share of the experts.
        weights: of one GPU, by part, without a drafter's.
        caches: of all layers on one rank, those of a drafter included.
        draft: what a drafter adds.
        settings: of the cache, measured and derived terms filled in.
        measured: names of the terms that were given.
        engine: how the engine divides memory.
        budget: blocks and the terms they come from.
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
    engine: EngineMemory
    budget: KVBudget
    max_model_len: int
    asked: Asked

    @property
    def start_up(self) -> StartUp:
        """What the engine logs of."""
        latent = any(cache.kind == "latent" for cache in self.caches)
        budget = self.budget
        return StartUp(
            budget.engine_blocks,
            budget.layout,
            self.max_model_len,
            budget.kv_bytes_per_token,
            self.deployment.kv_dtype,
            latent,
        )

    @property
    def blocks_for_requests(self) -> int:
        """Blocks that requests can hold."""
        return self.budget.engine_blocks - self.engine.rules.null_block

    @property
    def blocks_at_start_up(self) -> int:
        """Blocks that the engine counts on when it looks whether `max_model_len` fits."""
        rules = self.engine.rules
        return self.budget.engine_blocks - (rules.null_block and rules.start_up_knows)


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
    settings, utilization = _settings(cfg)
    parts = _weights(deployment, cfg.dp)
    weights = sum(part.rank_bytes for part in parts) + draft.weight_bytes
    measured = _measured(cfg.size, settings)
    if "weights_gib" in measured:
        weights = gib_to_bytes(measured["weights_gib"])
    ask = Ask(
        deployment,
        longest,
        weights,
        settings.block_size,
        settings.enable_prefix_caching,
        cfg.size.num_speculative_tokens,
        utilization,
    )
    engine = _engine(cfg, ask)
    sizes = measured if cfg.dp == 1 else {"weights_gib": gib(weights), **measured}
    settings = _filled(settings, engine, sizes)
    budget = settings.budget(deployment, longest, engine.rules, draft)
    return Sizing(
        deployment,
        cfg.dp,
        parts,
        (*model.kv_layers(deployment.kv_dtype, deployment.tp), *draft.caches),
        draft,
        settings,
        frozenset(measured),
        engine,
        budget,
        longest,
        asked,
    )


def _settings(cfg: DictConfig) -> tuple[KVSettings, float | None]:
    """Of the cache, and the share of memory that was asked for; None leaves it to the engine."""
    asked = cfg.kv.gpu_memory_utilization
    if asked is None:
        cfg.kv.gpu_memory_utilization = 0.9  # a stand-in: `_filled` puts the engine's own
    settings: KVSettings = make(cfg, "kv")
    return settings, None if asked is None else settings.gpu_memory_utilization


def _deployment(cfg: DictConfig) -> Deployment:
    checks.choice("dtype", cfg.dtype, tuple(DTYPE_BYTES))
    kv_dtype = cfg.kv_dtype
    if kv_dtype is None:
        kv_dtype = cfg.dtype if cfg.dtype in KV_DTYPES else "bf16"
    model = _model(cfg)
    if cfg.size.mamba_ssm_cache_dtype is not None:
        model = with_state_dtype(model, cfg.size.mamba_ssm_cache_dtype)
    return Deployment(model, make(cfg, "hardware"), cfg.tp, cfg.dtype, kv_dtype)


def _weights(deployment: Deployment, dp: int) -> tuple[WeightPart, ...]:
    """What is loaded on one GPU; experts are split over all ranks (vLLM `-dp` with `-ep`)."""
    model, dtype, tp = deployment.model, deployment.dtype, deployment.tp
    own = [part for part in model.weight_parts(dtype, tp) if part.loaded]
    if dp == 1:
        return tuple(own)
    shared = {part.name: part for part in model.weight_parts(dtype, tp * dp)}
    return tuple(shared[part.name] if part.name == "experts" else part for part in own)


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


def _engine(cfg: DictConfig, ask: Ask) -> EngineMemory:
    profile = make(cfg, "scheduler")
    try:
        return engine_memory(profile, ask)
    except SettingError as error:
        raise error.within("scheduler") from None


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


def _filled(settings: KVSettings, engine: EngineMemory, sizes: Mapping[str, float]) -> KVSettings:
    """Settings with the engine's terms, those that were measured instead of the derived ones."""
    terms: dict[str, float] = {}
    if settings.reserve_gib is None or any(name in sizes for name in TERMS):
        derived = engine.non_torch_bytes, engine.activation_bytes, engine.graph_bytes
        terms = dict(zip(TERMS, map(gib, derived), strict=True))
    terms = {"gpu_memory_utilization": engine.utilization, **terms, **sizes}
    return replace(settings, **terms)  # type: ignore[arg-type]
