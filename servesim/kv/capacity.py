"""How many KV blocks fit, with every term of the budget.

memory × utilization − weights − what else the engine needs, over the bytes of one block (vLLM
`gpu_worker.py`, whose profile run measures the rest: activations, CUDA graphs, NCCL and allocator
overhead).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import CapacityError, SettingError
from servesim.kv.budget import NO_DRAFT, RESERVE, TERMS, Draft, KVBudget, Needs
from servesim.kv.groups import CacheRules, KVLayout, layout_of
from servesim.model.parts import KVLayers
from servesim.units import gib, gib_to_bytes


@dataclass(frozen=True, slots=True)
class KVSettings:
    """The cache as a user sets it, under vLLM's names.

    Attributes:
        block_size: tokens per block, where the engine has no page size of its own.
        enable_prefix_caching: whether full blocks are shared by content.
        num_gpu_blocks: blocks of `block_size` tokens, the engine's null block included; null
            derives them. An engine with pages of its own cuts the same memory into them.
        gpu_memory_utilization: share of GPU memory that the engine may take; null is its default.
        weights_gib: GiB of weights on one rank as measured; null derives them.
        kv_cache_gib: GiB of the cache as measured; null derives it.
        non_torch_gib: GiB that torch does not allocate (CUDA context, NCCL); null derives them.
        activation_gib: GiB that activations take at the peak; null derives them.
        cuda_graph_gib: GiB that CUDA graphs take; null derives them.
        reserve_gib: GiB for these three together; null leaves them apart.
    """

    block_size: int = 16
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None
    gpu_memory_utilization: float | None = None
    weights_gib: float | None = None
    kv_cache_gib: float | None = None
    non_torch_gib: float | None = None
    activation_gib: float | None = None
    cuda_graph_gib: float | None = None
    reserve_gib: float | None = None

    def __post_init__(self) -> None:
        checks.whole("block_size", self.block_size, at_least=1)
        checks.flag("enable_prefix_caching", self.enable_prefix_caching)
        if self.num_gpu_blocks is not None:
            checks.whole("num_gpu_blocks", self.num_gpu_blocks, at_least=2)
        share = self.gpu_memory_utilization
        if share is not None:
            checks.fraction("gpu_memory_utilization", share, open_at_zero=True)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_gib") and value is not None:
                checks.size_gib(field.name, value)
        given = [name for name in TERMS if getattr(self, name) is not None]
        if self.reserve_gib is not None and given:
            reason = f"stands for {', '.join(TERMS)} together, and {given[0]} is given, too"
            raise SettingError(RESERVE, self.reserve_gib, f"{reason}; nearest: null")

    def budget(
        self,
        deployment: Deployment,
        needs: Needs,
        max_model_len: int | None = None,
        rules: CacheRules | None = None,
        draft: Draft = NO_DRAFT,
    ) -> KVBudget:
        """Blocks for one deployment.

        Args:
            deployment: what is served on what.
            needs: of the engine, where the settings have no measured value instead.
            max_model_len: longest context, on which it depends how many tokens fit where layers
                keep different amounts of it; null is the model's.
            rules: of the engine's layout; null is those of vLLM 0.33.
            draft: what a drafter adds.

        Raises:
            CapacityError: naming the terms, where no block is left.
        """
        rules = rules or CacheRules(self.block_size, self.enable_prefix_caching)
        model, tp = deployment.model, deployment.tp
        memory = gib_to_bytes(deployment.gpu.memory_gib)
        usable = int(memory * needs.utilization)
        weights = self.weight_bytes(deployment, draft)
        rest = self._rest(needs)
        caches = (*model.kv_layers(deployment.kv_dtype, tp), *draft.caches)
        layout = layout_of(caches, rules)
        cache = usable - weights - sum(rest.values())
        if self.kv_cache_gib is not None:
            cache = gib_to_bytes(self.kv_cache_gib)
        blocks = cache // layout.block_bytes
        longest = max_model_len or model.max_position_embeddings
        if self.num_gpu_blocks is not None:
            blocks = self._given_blocks(self.num_gpu_blocks, caches, layout, longest)
        drafted = sum(c.num_layers * c.bytes_per_token for c in draft.caches)
        budget = KVBudget(
            num_gpu_blocks=blocks,
            block_size=layout.block_size,
            kv_cache_tokens=_tokens(layout, blocks, longest),
            kv_bytes_per_token=model.kv_bytes_per_token(deployment.kv_dtype, tp) + drafted,
            memory_bytes=memory,
            usable_bytes=usable,
            weight_bytes=weights,
            rest=rest,
            kv_cache_bytes=cache,
            given=self.num_gpu_blocks is not None,
            layout=layout,
        )
        if budget.kv_cache_tokens < layout.block_size:
            raise CapacityError(self._no_room(deployment, budget))
        return budget

    def _given_blocks(
        self, given: int, caches: Sequence[KVLayers], layout: KVLayout, max_model_len: int
    ) -> int:
        """Blocks of the engine in the memory of those that were given.

        Raises:
            CapacityError: too few for one block of tokens.
        """
        per_block = in_blocks_of(self.block_size, caches, layout).block_bytes
        blocks = given * per_block // layout.block_bytes
        if _tokens(layout, blocks, max_model_len) < layout.block_size:
            least = layout.rules.null_block + 1
            if not layout.uniform:
                request = layout.blocks_per_request(max_model_len)
                least = -(-layout.block_size * request // max_model_len)
            enough = max(-(-least * layout.block_bytes // per_block), 2)
            reason = f"hold less than {layout.block_size} tokens of a request of {max_model_len}"
            raise CapacityError(f"kv.num_gpu_blocks={given}: {reason}; nearest: {enough}")
        return blocks

    def weight_bytes(self, deployment: Deployment, draft: Draft) -> int:
        """Weights on one rank, measured or derived."""
        if self.weights_gib is not None:
            return gib_to_bytes(self.weights_gib)
        model, tp, dp = deployment.model, deployment.tp, deployment.dp
        return model.weight_bytes(deployment.dtype, tp, dp) + draft.weight_bytes

    def _rest(self, needs: Needs) -> dict[str, int]:
        """What neither weights nor cache take, by the name of its setting."""
        if self.reserve_gib is not None:
            return {RESERVE: gib_to_bytes(self.reserve_gib)}
        given = self.non_torch_gib, self.activation_gib, self.cuda_graph_gib
        derived = needs.non_torch_bytes, needs.activation_bytes, needs.graph_bytes
        return {
            name: size if amount_gib is None else gib_to_bytes(amount_gib)
            for name, amount_gib, size in zip(TERMS, given, derived, strict=True)
        }

    def _no_room(self, deployment: Deployment, budget: KVBudget) -> str:
        model, size = deployment.model, budget.layout.block_bytes
        if self.kv_cache_gib is not None:
            given = f"kv_cache_gib={self.kv_cache_gib:g}"
            return f"no KV cache: {given} is less than two blocks of {size} B"
        weights, usable = gib(budget.weight_bytes), gib(budget.usable_bytes)
        rest = ", ".join(f"{name}={gib(amount):.4g}" for name, amount in budget.rest.items())
        left = ""
        if budget.kv_cache_bytes > 0:
            left = (
                f", which leaves {gib(budget.kv_cache_bytes):.2f} GiB, less than two blocks of "
                f"{size} B"
            )
        return (
            f"no KV cache: {model.name} ({deployment.dtype}, tp={deployment.tp}) needs "
            f"{weights:.2f} GiB of weights and {rest} of "
            f"{usable:.2f} GiB usable on {deployment.gpu.name}{left}"
        )


def in_blocks_of(block_size: int, caches: Sequence[KVLayers], layout: KVLayout) -> KVLayout:
    """The layout as it would be with blocks of so many tokens."""
    return layout_of(caches, replace(layout.rules, block_size=block_size))


def _tokens(layout: KVLayout, blocks: int, max_model_len: int) -> int:
    """Whole blocks of tokens that requests can hold."""
    if layout.uniform:
        return (blocks - layout.rules.null_block) * layout.block_size
    tokens = int(layout.concurrency(max(blocks, 0), max_model_len) * max_model_len)
    return tokens // layout.block_size * layout.block_size
