"""What an engine profile is asked for, and answers, about GPU memory."""

from dataclasses import dataclass

from servesim.deployment import Deployment
from servesim.kv.budget import Needs
from servesim.kv.groups import CacheRules
from servesim.policies.order.fcfs import Fcfs
from servesim.scheduler.base import CacheSize, EngineSetup


@dataclass(frozen=True, slots=True)
class Ask:
    """What a profile is asked about.

    Attributes:
        deployment: what is served on what.
        max_model_len: longest context, tokens.
        weight_bytes: of one rank.
        block_size: tokens per block, where the profile has no page size of its own.
        enable_prefix_caching: whether full blocks are shared by content.
        num_speculative_tokens: drafts per verification; null takes the profile's.
        gpu_memory_utilization: share of memory; null takes the engine's default.
    """

    deployment: Deployment
    max_model_len: int
    weight_bytes: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    num_speculative_tokens: int | None = None
    gpu_memory_utilization: float | None = None

    def setup(self) -> EngineSetup:
        """Enough of a set-up for limits: how large the cache is does not matter to them."""
        cache = CacheSize(1 << 20, 1024, self.enable_prefix_caching)
        return EngineSetup(self.deployment.gpu, cache, self.max_model_len, Fcfs())


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """How an engine divides GPU memory.

    Attributes:
        engine: name and release, for people.
        log: style of its start-up log: "vllm-v0", "vllm-0.8", "vllm-0.11", "vllm-0.33", "sglang"
            or "".
        utilization: share of the memory that weights, cache and the terms below share.
        non_torch_bytes: kept for what torch does not allocate.
        activation_bytes: kept for activations, and for all other buffers of the engine.
        graph_bytes: kept for CUDA graphs.
        max_num_batched_tokens: tokens per step.
        max_num_seqs: requests at a time.
        rules: of the cache's layout.
        notes: what of this is an assumption or not modelled.
    """

    engine: str
    log: str
    utilization: float
    non_torch_bytes: int
    activation_bytes: int
    graph_bytes: int
    max_num_batched_tokens: int
    max_num_seqs: int
    rules: CacheRules
    notes: tuple[str, ...] = ()

    @property
    def needs(self) -> Needs:
        """The terms of the budget."""
        return Needs(
            self.utilization, self.non_torch_bytes, self.activation_bytes, self.graph_bytes
        )
