"""The sizes behind a number of KV blocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from servesim.kv.groups import KVLayout
from servesim.model.parts import KVLayers
from servesim.units import gib

TERMS = ("non_torch_gib", "activation_gib", "cuda_graph_gib")
RESERVE = "reserve_gib"
_IN_WORDS = dict(zip(TERMS, ("not torch's", "activations", "CUDA graphs"), strict=True))
_IN_WORDS[RESERVE] = "reserve"


class Needs(NamedTuple):
    """What an engine takes of GPU memory besides weights and cache, where nobody measured it.

    Attributes:
        utilization: share of the memory that it takes in all.
        non_torch_bytes: for what torch does not allocate.
        activation_bytes: for activations at the peak.
        graph_bytes: for CUDA graphs.
    """

    utilization: float
    non_torch_bytes: int
    activation_bytes: int
    graph_bytes: int


class Draft(NamedTuple):
    """What a drafter adds to the model on each rank.

    Attributes:
        weight_bytes: of its weights.
        caches: of its layers.
    """

    weight_bytes: int = 0
    caches: tuple[KVLayers, ...] = ()


NO_DRAFT = Draft()


@dataclass(frozen=True, slots=True)
class KVBudget:
    """The sizes behind a number of blocks; bytes per GPU.

    Attributes:
        num_gpu_blocks: blocks as the engine counts them, the null block included if it has one.
        block_size: tokens per block.
        kv_cache_tokens: whole blocks of tokens that requests can hold. Where groups of layers
            share the blocks, as many as the engine says it holds at `max_model_len`.
        kv_bytes_per_token: K and V of one token on one rank.
        memory_bytes: what the GPU has.
        usable_bytes: of it, what the engine may take.
        weight_bytes: weights on one rank.
        rest: what else is kept, by the name of its setting: the three terms, or the reserve.
        kv_cache_bytes: the cache.
        given: whether the number of blocks was given and not derived.
        layout: the groups and their block.
    """

    num_gpu_blocks: int
    block_size: int
    kv_cache_tokens: int
    kv_bytes_per_token: int
    memory_bytes: int
    usable_bytes: int
    weight_bytes: int
    rest: Mapping[str, int]
    kv_cache_bytes: int
    given: bool
    layout: KVLayout

    @property
    def unclaimed_bytes(self) -> int:
        """What weights and the rest leave of `usable_bytes`; the cache, unless that is given."""
        return self.usable_bytes - self.weight_bytes - sum(self.rest.values())

    def describe(self) -> str:
        """The budget in one line."""
        size = (
            f"{self.num_gpu_blocks} KV blocks × {self.block_size} tokens "
            f"({self.kv_bytes_per_token} B per token)"
        )
        if not self.layout.uniform:
            size += (
                f", shared by {len(self.layout.groups)} groups of layers: "
                f"{self.kv_cache_tokens} tokens"
            )
        if self.given:
            return f"{size}, given"
        if self.kv_cache_bytes != self.unclaimed_bytes:
            return f"{size} = {gib(self.kv_cache_bytes):.2f} GiB per GPU, given"
        rest = " - ".join(f"{_IN_WORDS[name]} {gib(n):.2f}" for name, n in self.rest.items())
        return (
            f"{size} = ({gib(self.memory_bytes):.2f} GiB × "
            f"{self.usable_bytes / self.memory_bytes:.4g} - weights "
            f"{gib(self.weight_bytes):.2f} - {rest} GiB) per GPU"
        )
