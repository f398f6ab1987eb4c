"""How many KV blocks fit, with every term of the budget.

memory × gpu_memory_utilization − weights − what else the engine needs, over the bytes of one
block (vLLM `gpu_worker.py`, whose profile run measures the rest: activations, CUDA graphs, NCCL
and allocator overhead).
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import CapacityError, SettingError
from servesim.kv.groups import CacheRules, KVLayout, layout_of
from servesim.model.parts import KVLayers
from servesim.units import gib, gib_to_bytes

_TP_SIZES = (2, 4, 8, 16, 32, 64)
TERMS = ("non_torch_gib", "activation_gib", "cuda_graph_gib")


class Draft(NamedTuple):
    """What a drafter adds to the model on each rank.

    Attributes:
        weight_bytes: of its weights.
        caches: of its layers.
    """

    weight_bytes: int = 0
    caches: tuple[KVLayers, ...] = ()


@dataclass(frozen=True, slots=True)
class KVBudget:
    """The sizes behind a number of blocks; bytes per GPU.

    Attributes:
        num_gpu_blocks: blocks, the null block included. Where groups of layers share the blocks,
            as many blocks of whole tokens as hold what the engine says it holds.
        block_size: tokens per block.
        kv_bytes_per_token: K and V of one token on one rank.
        memory_bytes: what the GPU has.
        usable_bytes: of it, what the engine may take.
        weight_bytes: weights on one rank.
        reserve_bytes: everything else but the cache.
        kv_cache_bytes: the cache.
        given: whether `num_gpu_blocks` was given and not derived.
        engine_blocks: blocks that the engine has; `num_gpu_blocks` unless groups share them.
        layout: the groups and their block.
    """

    num_gpu_blocks: int
    block_size: int
    kv_bytes_per_token: int
    memory_bytes: int
    usable_bytes: int
    weight_bytes: int
    reserve_bytes: int
    kv_cache_bytes: int
    given: bool
    engine_blocks: int
    layout: KVLayout

    @property
    def kv_cache_tokens(self) -> int:
        """Tokens that fit, the null block not counted."""
        return (self.num_gpu_blocks - 1) * self.block_size

    def describe(self) -> str:
        """The budget in one line."""
        size = (
            f"{self.num_gpu_blocks} KV blocks × {self.block_size} tokens "
            f"({self.kv_bytes_per_token} B per token)"
        )
        if not self.layout.uniform:
            size += (
                f", which stand for {self.engine_blocks} blocks that {len(self.layout.groups)} "
                "groups of layers share"
            )
        if self.given:
            return f"{size}, given"
        return (
            f"{size} = ({gib(self.memory_bytes):.2f} GiB × "
            f"{self.usable_bytes / self.memory_bytes:.2f} - weights "
            f"{gib(self.weight_bytes):.2f} - reserve {gib(self.reserve_bytes):.2f} GiB) per GPU"
        )


@dataclass(frozen=True, slots=True)
class KVSettings:
    """The cache as a user sets it, under vLLM's names.

    Attributes:
        block_size: tokens per block.
        enable_prefix_caching: whether full blocks are shared by content.
        num_gpu_blocks: blocks, the null block included; null derives them.
        gpu_memory_utilization: share of GPU memory that the engine may take.
        reserve_gib: GiB kept for what is neither weights nor KV; unused where the terms are given.
        weights_gib: GiB of weights on one rank as measured; null derives them.
        kv_cache_gib: GiB of the cache as measured; null derives it.
        non_torch_gib: GiB that torch does not allocate: CUDA context, NCCL.
        activation_gib: GiB that activations take at the peak.
        cuda_graph_gib: GiB that CUDA graphs take.
    """

    block_size: int = 16
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None
    gpu_memory_utilization: float = 0.92
    reserve_gib: float | None = 3.0
    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    non_torch_gib: float | None = None
    activation_gib: float | None = None
    cuda_graph_gib: float | None = None

    def __post_init__(self) -> None:
        checks.whole("block_size", self.block_size, at_least=1)
        checks.flag("enable_prefix_caching", self.enable_prefix_caching)
        if self.num_gpu_blocks is not None:
            checks.whole("num_gpu_blocks", self.num_gpu_blocks, at_least=2)
        checks.fraction("gpu_memory_utilization", self.gpu_memory_utilization, open_at_zero=True)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_gib") and value is not None:
                checks.size_gib(field.name, value)

    @property
    def rest_gib(self) -> float:
        """GiB for what is neither weights nor KV.

        Raises:
            SettingError: some of the terms are given and some are not, or nothing is.
        """
        terms: dict[str, float | None] = {name: getattr(self, name) for name in TERMS}
        given = {name: value for name, value in terms.items() if value is not None}
        missing = [name for name in TERMS if name not in given]
        if given and missing:
            name, value = next(iter(given.items()))
            also = " and ".join(missing)
            raise SettingError(name, value, f"the terms replace reserve_gib together; give {also}")
        if given:
            return sum(given.values())
        if self.reserve_gib is None:
            raise SettingError("reserve_gib", None, f"or {', '.join(TERMS)} must be given")
        return self.reserve_gib

    def rules(self) -> CacheRules:
        """Those of vLLM 0.33 with these settings."""
        return CacheRules(self.block_size, self.enable_prefix_caching)

    def budget(
        self,
        deployment: Deployment,
        max_model_len: int | None = None,
        rules: CacheRules | None = None,
        draft: Draft | None = None,
    ) -> KVBudget:
        """Blocks for one deployment.

        Args:
            deployment: what is served on what.
            max_model_len: longest context, on which it depends how many tokens fit where layers
                keep different amounts of it; null is the model's.
            rules: of the engine's layout; null is `rules()`.
            draft: what a drafter adds.

        Raises:
            CapacityError: naming the terms, where no block is left.
        """
        rules, draft = rules or self.rules(), draft or Draft()
        budget = self._terms(deployment, max_model_len, rules, draft)
        if budget.num_gpu_blocks < 2:
            raise CapacityError(self._no_room(deployment, budget, derived=draft == Draft()))
        return budget

    def _terms(
        self, deployment: Deployment, max_model_len: int | None, rules: CacheRules, draft: Draft
    ) -> KVBudget:
        model, tp = deployment.model, deployment.tp
        memory = gib_to_bytes(deployment.gpu.memory_gib)
        usable = int(memory * self.gpu_memory_utilization)
        weights = model.weight_bytes(deployment.dtype, tp) + draft.weight_bytes
        if self.weights_gib is not None:
            weights = gib_to_bytes(self.weights_gib)
        reserve = gib_to_bytes(self.rest_gib)
        layout = layout_of((*model.kv_layers(deployment.kv_dtype, tp), *draft.caches), rules)
        cache = usable - weights - reserve
        if self.kv_cache_gib is not None:
            cache = gib_to_bytes(self.kv_cache_gib)
        blocks = engine_blocks = self.num_gpu_blocks or cache // layout.block_bytes
        if not layout.uniform:
            longest = max_model_len or model.max_position_embeddings
            tokens = int(layout.concurrency(max(engine_blocks, 0), longest) * longest)
            blocks = tokens // layout.block_size + 1
        drafted = sum(c.num_layers * c.bytes_per_token for c in draft.caches)
        return KVBudget(
            num_gpu_blocks=blocks if engine_blocks > 1 else engine_blocks,
            block_size=layout.block_size,
            kv_bytes_per_token=model.kv_bytes_per_token(deployment.kv_dtype, tp) + drafted,
            memory_bytes=memory,
            usable_bytes=usable,
            weight_bytes=weights,
            reserve_bytes=reserve,
            kv_cache_bytes=cache,
            given=self.num_gpu_blocks is not None,
            engine_blocks=engine_blocks,
            layout=layout,
        )

    def _no_room(self, deployment: Deployment, budget: KVBudget, *, derived: bool) -> str:
        """`derived`: nothing but the model is loaded, so that more ranks can be tried."""
        model, rules = deployment.model, self.rules()
        size = budget.layout.block_bytes
        if self.kv_cache_gib is not None:
            given = f"kv_cache_gib={self.kv_cache_gib:g}"
            return f"no KV cache: {given} is less than two blocks of {size} B"
        wider = (
            replace(deployment, tp=tp)
            for tp in _TP_SIZES
            if tp > deployment.tp and model.splits_over(tp)
        )
        fits = (d.tp for d in wider if self._terms(d, None, rules, Draft()).num_gpu_blocks >= 2)
        nearest = next(fits, None) if derived and self.weights_gib is None else None
        hint = "" if nearest is None else f"; nearest: tp={nearest}"
        weights, usable = gib(budget.weight_bytes), gib(budget.usable_bytes)
        terms = f"reserve_gib={self.rest_gib:g}"
        if self.activation_gib is not None:
            terms = f"{self.rest_gib:.2f} GiB for the rest"
        if budget.kv_cache_bytes > 0:
            left = f"leaves {gib(budget.kv_cache_bytes):.2f} GiB, less than two blocks of {size} B"
            hint = f", which {left}{hint}"
        return (
            f"no KV cache: {model.name} ({deployment.dtype}, tp={deployment.tp}) needs "
            f"{weights:.2f} GiB of weights and {terms} of "
            f"{usable:.2f} GiB usable on {deployment.gpu.name}{hint}"
        )
