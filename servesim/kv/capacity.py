"""How many KV blocks fit, with every term of the budget.

memory × gpu_memory_utilization − weights − reserve, over the bytes of one block (vLLM
`gpu_worker.py`; its profile run measures what `reserve_gib` states: activations, CUDA graphs,
NCCL and allocator overhead).
"""

from dataclasses import dataclass, replace

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import CapacityError
from servesim.units import gib, gib_to_bytes

_TP_SIZES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class KVBudget:
    """The sizes behind a number of blocks; bytes per GPU.

    Attributes:
        num_gpu_blocks: blocks, the null block included.
        block_size: tokens per block.
        kv_bytes_per_token: K and V of one token on one rank.
        memory_bytes: what the GPU has.
        usable_bytes: of it, what the engine may take.
        weight_bytes: weights on one rank.
        reserve_bytes: stated reserve for everything else.
        given: whether `num_gpu_blocks` was given and not derived.
    """

    num_gpu_blocks: int
    block_size: int
    kv_bytes_per_token: int
    memory_bytes: int
    usable_bytes: int
    weight_bytes: int
    reserve_bytes: int
    given: bool

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
        reserve_gib: GiB kept for what is neither weights nor KV.
    """

    block_size: int = 16
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None
    gpu_memory_utilization: float = 0.92
    reserve_gib: float = 3.0

    def __post_init__(self) -> None:
        checks.whole("block_size", self.block_size, at_least=1)
        checks.flag("enable_prefix_caching", self.enable_prefix_caching)
        if self.num_gpu_blocks is not None:
            checks.whole("num_gpu_blocks", self.num_gpu_blocks, at_least=2)
        checks.fraction("gpu_memory_utilization", self.gpu_memory_utilization, open_at_zero=True)
        checks.not_negative("reserve_gib", self.reserve_gib)

    def budget(self, deployment: Deployment) -> KVBudget:
        """Blocks for one deployment.

        Raises:
            CapacityError: naming the terms, where no block is left.
        """
        budget = self._terms(deployment)
        if budget.num_gpu_blocks < 2:
            raise CapacityError(self._no_room(deployment, budget))
        return budget

    def _terms(self, deployment: Deployment) -> KVBudget:
        model, tp = deployment.model, deployment.tp
        memory = gib_to_bytes(deployment.gpu.memory_gib)
        usable = int(memory * self.gpu_memory_utilization)
        weights = model.weight_bytes(deployment.dtype, tp)
        reserve = gib_to_bytes(self.reserve_gib)
        per_token = model.kv_bytes_per_token(deployment.kv_dtype, tp)
        blocks = self.num_gpu_blocks
        if blocks is None:
            blocks = (usable - weights - reserve) // (per_token * self.block_size)
        return KVBudget(
            num_gpu_blocks=blocks,
            block_size=self.block_size,
            kv_bytes_per_token=per_token,
            memory_bytes=memory,
            usable_bytes=usable,
            weight_bytes=weights,
            reserve_bytes=reserve,
            given=self.num_gpu_blocks is not None,
        )

    def _no_room(self, deployment: Deployment, budget: KVBudget) -> str:
        model = deployment.model
        wider = (
            replace(deployment, tp=tp)
            for tp in _TP_SIZES
            if tp > deployment.tp and model.splits_over(tp)
        )
        fits = (d.tp for d in wider if self._terms(d).num_gpu_blocks >= 2)
        nearest = next(fits, None)
        hint = "" if nearest is None else f"; nearest: tp={nearest}"
        weights, usable = gib(budget.weight_bytes), gib(budget.usable_bytes)
        return (
            f"no KV cache: {model.name} ({deployment.dtype}, tp={deployment.tp}) needs "
            f"{weights:.2f} GiB of weights and reserve_gib={self.reserve_gib:g} of "
            f"{usable:.2f} GiB usable on {deployment.gpu.name}{hint}"
        )
