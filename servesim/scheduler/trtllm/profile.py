"""TensorRT-LLM with its PyTorch backend, releases 1.x: the engine's settings under its own names.

Documented (nvidia.github.io/TensorRT-LLM: "KV cache system", "Scheduler", "Paged attention, IFB and
request scheduling", LLM API reference of 1.x): the names and defaults below, in-flight batching,
what GUARANTEED_NO_EVICT guarantees, that prompts are whole without chunked context, the overlap
scheduler, and that memory for the cache is a fraction of what is free after a trial run.

Assumed, or simplified; nothing here was replayed against the real engine:

* a step takes generations before prompts, and nobody overtakes the head of the queue (the engine
  may put a prompt of less than a block into what a rounded chunk leaves over);
* a prompt counts with all its tokens towards `max_num_tokens`, cached ones too, as blocks are
  looked up when the batch has been chosen;
* blocks are found by others when the prompt is done, or the request has ended; whole blocks only
  (the engine can reuse a part of one), and a request is not held back for a prefix that another
  one is computing;
* the policies MAX_UTILIZATION and STATIC_BATCH, and speculation, are left out.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.trtllm.limits import TensorRTLLMLimits
from servesim.scheduler.trtllm.scheduler import TensorRTLLMScheduler


@dataclass(frozen=True, slots=True)
class TensorRTLLM:
    """Engine settings under TensorRT-LLM's own names.

    Attributes:
        max_batch_size: running requests.
        max_num_tokens: tokens per step.
        enable_chunked_prefill: whether a prompt that does not fit into a step is cut into chunks of
            whole blocks ("chunked context"). Without, longer prompts than `max_num_tokens` are
            refused.
        tokens_per_block: of the KV cache; blocks of the set-up are cut into these.
        disable_overlap_scheduler: plan a step when the one before it is over. The real engine does
            so only if told to; by itself it plans a step while the one before it runs, so a reply
            that ends by EOS is computed for one step more, and what has ended holds its seat and
            its blocks for as long.
    """

    max_batch_size: int = 2048
    max_num_tokens: int = 8192
    enable_chunked_prefill: bool = False
    tokens_per_block: int = 32
    disable_overlap_scheduler: bool = True

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_num_tokens", "tokens_per_block"):
            checks.whole(name, getattr(self, name), at_least=1)
        for name in ("enable_chunked_prefill", "disable_overlap_scheduler"):
            checks.flag(name, getattr(self, name))
        if self.enable_chunked_prefill and self.max_num_tokens < self.tokens_per_block:
            least = self.tokens_per_block
            reason = f"chunks are whole blocks of {least} tokens; nearest: {least}"
            raise SettingError("max_num_tokens", self.max_num_tokens, reason)

    @property
    def overlaps_host(self) -> bool:
        """With the overlap scheduler."""
        return not self.disable_overlap_scheduler

    def start(self, setup: EngineSetup, stepwise: bool = False) -> TensorRTLLMScheduler:
        """A scheduler with empty queues; with `stepwise`, one without steady steps.

        Raises:
            SettingError: a victim policy, or no block fits into the cache.
        """
        setup.refuse_victim_policy("GUARANTEED_NO_EVICT preempts nobody")
        return TensorRTLLMScheduler(setup, self.limits(setup), stepwise)

    def limits(self, setup: EngineSetup) -> TensorRTLLMLimits:
        """The limits in force."""
        cache = setup.cache
        tokens = (cache.num_gpu_blocks - 1) * cache.block_size
        if tokens < self.tokens_per_block:
            reason = f"no block fits into the {tokens} tokens of KV cache; nearest: {tokens}"
            raise SettingError("tokens_per_block", self.tokens_per_block, reason)
        return TensorRTLLMLimits(
            max_batch_size=self.max_batch_size,
            max_num_tokens=self.max_num_tokens,
            chunks=self.enable_chunked_prefill,
            overlaps=not self.disable_overlap_scheduler,
            block_size=self.tokens_per_block,
            num_blocks=tokens // self.tokens_per_block,
            max_model_len=setup.max_model_len,
        )

    def describe(self, setup: EngineSetup) -> str:
        """Engine, policy and limits in one line."""
        limits = self.limits(setup)
        overlap = "without overlap" if self.disable_overlap_scheduler else "overlapped"
        context = "chunked context" if self.enable_chunked_prefill else "whole prompts"
        reuse = "block reuse" if setup.cache.enable_prefix_caching else "no block reuse"
        return (
            f"TensorRT-LLM 1.x scheduler {overlap}, GUARANTEED_NO_EVICT, {context}; "
            f"max_batch_size {limits.max_batch_size}, max_num_tokens {limits.max_num_tokens}, "
            f"{reuse}, {limits.num_blocks} blocks × {limits.block_size} tokens, "
            f"max_seq_len {limits.max_model_len}"
        )
