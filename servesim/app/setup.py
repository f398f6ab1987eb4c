"""From a composed configuration to the objects of one run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from servesim import checks
from servesim.app.interval_settings import Intervals, intervals_of
from servesim.app.paths import groups
from servesim.cost.base import CostModel
from servesim.deployment import Deployment
from servesim.engine.front_end import FrontEnd
from servesim.errors import ServesimError, SettingError, UnknownChoiceError, nearest
from servesim.kv.budget import KVBudget
from servesim.kv.capacity import KVSettings
from servesim.metrics.base import Metric
from servesim.model.dtypes import kv_dtype_of
from servesim.model.spec import ModelSpec
from servesim.policies.admission.base import Admission
from servesim.policies.order.base import Order
from servesim.policies.predictor.base import Predictor
from servesim.policies.routing.base import Routing
from servesim.policies.victim.base import Victim
from servesim.scheduler.base import CacheSize, EngineSetup, Profile
from servesim.scheduler.kv_budget import CacheOf
from servesim.units import seconds_to_ps
from servesim.workload.base import Workload

SETTINGS = (
    "model",
    "hardware",
    "cost",
    "workload",
    "scheduler",
    "kv",
    "policies",
    "front_end",
    "metrics",
    "output",
    "experiment",
    "seed",
    "tp",
    "dp",
    "engine",
    "dtype",
    "kv_dtype",
    "max_model_len",
    "until_s",
    "stepwise",
    "intervals",
    "objective",
    "hydra",
)


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything one run is made of.

    Attributes:
        victim: who is preempted; None leaves it to the engine.
        admission: whom the front end refuses; None refuses nobody.
        routing: which data-parallel rank a request is sent to.
        front_end: delays between the clients and the engine.
        labels: chosen option of each config group, e.g. {"policies/order": "fcfs"}.
        until_s: when to cut the run, seconds; None runs to the end.
        stepwise: look at every step instead of skipping those in which nothing is decided.
        intervals: whether the metrics are reported with intervals.
    """

    seed: int
    deployment: Deployment
    kv: KVSettings
    profile: Profile
    order: Order
    predictor: Predictor
    victim: Victim | None
    admission: Admission | None
    routing: Routing
    front_end: FrontEnd
    workload: Workload
    cost: CostModel
    metrics: Mapping[str, Metric]
    max_model_len: int | None
    until_s: float | None
    stepwise: bool
    intervals: Intervals
    labels: Mapping[str, str]

    def budget(self) -> KVBudget:
        """KV blocks and the terms they come from, as `servesim size` derives them.

        Raises:
            ServesimError: no block is left, or the engine has no limits for its settings.
        """
        return CacheOf(self.profile, self.kv, self.deployment, self.max_model_len).derive().budget

    def engine(self, budget: KVBudget) -> EngineSetup:
        """What the engine profile is started with.

        `max_model_len: null` is the model's longest context or, if less, what the cache holds
        (vLLM's `--max-model-len auto`).
        """
        longest = self.max_model_len
        if longest is None:
            longest = min(self.deployment.model.max_position_embeddings, budget.kv_cache_tokens)
        cache = CacheSize(
            budget.kv_cache_tokens // budget.block_size + 1,  # with a null block for every engine
            budget.block_size,
            self.kv.enable_prefix_caching,
            budget.kv_bytes_per_token,
        )
        return EngineSetup(self.deployment.gpu, cache, longest, self.order, self.victim)


def build(cfg: DictConfig, labels: Mapping[str, str]) -> Setup:
    """Build the objects that a composed configuration names.

    Raises:
        ServesimError: one line that names the setting by its full path.
    """
    _check_own_settings(cfg)
    profile: Profile = make(cfg, "scheduler")
    deployment = Deployment(
        model=make(cfg, "model"),
        gpu=make(cfg, "hardware"),
        tp=cfg.tp,
        engine=cfg.engine,
        dtype=cfg.dtype,
        kv_dtype=kv_dtype_of(cfg.kv_dtype, cfg.dtype),
        overlaps_host=profile.overlaps_host,
        dp=cfg.dp,
    )
    _check_context(cfg.max_model_len, deployment.model)
    return Setup(
        seed=cfg.seed,
        deployment=deployment,
        kv=make(cfg, "kv"),
        profile=profile,
        order=make(cfg, "policies.order"),
        predictor=make(cfg, "policies.predictor"),
        victim=make(cfg, "policies.victim"),
        admission=make(cfg, "policies.admission"),
        routing=make(cfg, "policies.routing"),
        front_end=make(cfg, "front_end"),
        workload=make(cfg, "workload"),
        cost=make(cfg, "cost"),
        metrics=_metrics(cfg),
        max_model_len=cfg.max_model_len,
        until_s=cfg.until_s,
        stepwise=cfg.stepwise,
        intervals=intervals_of(cfg.intervals),
        labels={k: v for k, v in labels.items() if not k.startswith("hydra/") and v},
    )


def _check_own_settings(cfg: DictConfig) -> None:
    """The settings that belong to no group."""
    unknown = [str(key) for key in cfg if key not in SETTINGS]
    if unknown:
        raise UnknownChoiceError("setting", unknown[0], SETTINGS)
    checks.whole("seed", cfg.seed)
    if cfg.max_model_len is not None:
        checks.whole("max_model_len", cfg.max_model_len, at_least=2)
    if cfg.until_s is not None:
        checks.positive("until_s", cfg.until_s)
        if not seconds_to_ps(cfg.until_s):
            raise SettingError(
                "until_s", cfg.until_s, "must be a nanosecond or more; nearest: 1e-9"
            )
    checks.flag("stepwise", cfg.stepwise)


def _check_context(max_model_len: int | None, model: ModelSpec) -> None:
    longest = model.max_position_embeddings
    if max_model_len is not None and max_model_len > longest:
        reason = f"{model.name} has max_position_embeddings {longest}; nearest: {longest}"
        raise SettingError("max_model_len", max_model_len, reason)


def _metrics(cfg: DictConfig) -> Mapping[str, Metric]:
    metrics: Mapping[str, Metric] = make(cfg, "metrics")
    for name, metric in metrics.items():
        if not hasattr(metric, "measure"):
            raise SettingError(f"metrics.{name}", metric, "is no metric (is its _target_ set?)")
    return metrics


def make(cfg: DictConfig, node: str) -> Any:
    """Instantiate one node; what goes wrong is told under the node's full name.

    Raises:
        ServesimError: one line that names the setting by its full path.
    """
    config = OmegaConf.select(cfg, node)
    if not isinstance(config, DictConfig):
        raise not_chosen(node.replace(".", "/"))
    missing = sorted(OmegaConf.missing_keys(config))
    if missing:
        name = missing[0] if missing[0].startswith(f"{node}.") else f"{node}.{missing[0]}"
        raise ServesimError(f"{name} must be given")
    try:
        return instantiate(config, _convert_="all")
    except InstantiationException as error:
        raise _reworded(error, node) from error


def not_chosen(group: str) -> ServesimError:
    """A run needs an option of a group, and none is chosen."""
    known = groups()
    options = known.get(group) or [name for name in known if name.startswith(f"{group}/")]
    return ServesimError(f"{group}: no option is chosen{nearest(group, options)}")


def _reworded(error: InstantiationException, node: str) -> ServesimError:
    cause, text = error.__cause__, str(error)
    found = re.search(r"full_key: (\S+)", text)
    where = found.group(1) if found else node
    if isinstance(cause, SettingError):
        return cause.within(where)
    if isinstance(cause, UnknownChoiceError):
        return UnknownChoiceError(f"{where}.{cause.what}", cause.value, cause.known)
    if isinstance(cause, ServesimError):
        return cause
    if isinstance(cause, TypeError):
        return ServesimError(f"{where} {_type_error(str(cause))}")
    found = re.search(r"Error locating target '([^']+)'", text)
    if found:
        why = cause.__cause__ if cause is not None else None
        missing = why is None or isinstance(why, ModuleNotFoundError | AttributeError)
        # a class of the user's own may be there and its module not load
        reason = "there is no such class" if missing else f"cannot be loaded: {why!r}"
        return ServesimError(f"{where}._target_='{found.group(1)}': {reason}")
    return ServesimError(f"{where}: {' '.join(str(cause or text).split())}")


def _type_error(text: str) -> str:
    """`unexpected keyword argument 'x'` and the like, without Python's words around it."""
    found = re.search(r"unexpected keyword argument '(\w+)'", text)
    if found:
        return f"has no setting '{found.group(1)}'"
    found = re.search(r"missing \d+ required [\w-]* ?arguments?: (.*)", text)
    return f"lacks {found.group(1)}" if found else text
