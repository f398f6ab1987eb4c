"""vLLM V0, release 0.6.6, the last series in which V0 was the default: settings under its names."""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.policies.order.priority import Priority
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.vllm.v0_scheduler import (
    ChunkedPrefillScheduler,
    PrefillFirstScheduler,
    VllmV0Scheduler,
)
from servesim.units import gib_to_bytes

CHUNKED_TOKENS = 2048  # vLLM 0.6.6.post1 config.py, with chunked prefill; the least without it
MODES = ("recompute", "swap")


@dataclass(frozen=True, slots=True)
class VllmV0:
    """Engine settings under vLLM's own names.

    The prefix cache, off by default in this release, is left out, and so is `delay_factor`.

    Attributes:
        max_num_batched_tokens: tokens per step; null is the engine's default, 2048 with chunked
            prefill and else at least `max_model_len`.
        max_num_seqs: running requests.
        enable_chunked_prefill: whether chunks of prompts run together with decodes. The engine
            turns it on by itself above 32K of context; here it is on if it is set.
        preemption_mode: "recompute" drops a victim's blocks, "swap" copies them to the CPU. The
            copies cost no time here.
        swap_space_gib: CPU memory per GPU for them. The engine aborts when it is full; here such
            a victim is recomputed.
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int = 256
    enable_chunked_prefill: bool = False
    preemption_mode: str = "recompute"
    swap_space_gib: float = 4.0

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens is not None:
            checks.whole("max_num_batched_tokens", self.max_num_batched_tokens, at_least=1)
        checks.whole("max_num_seqs", self.max_num_seqs, at_least=1)
        checks.flag("enable_chunked_prefill", self.enable_chunked_prefill)
        checks.choice("preemption_mode", self.preemption_mode, MODES)
        checks.not_negative("swap_space_gib", self.swap_space_gib)

    @property
    def overlaps_host(self) -> bool:
        """No: a step is planned when the one before it is over."""
        return False

    def start(self, setup: EngineSetup, stepwise: bool = False) -> VllmV0Scheduler:
        """A scheduler with empty queues; with `stepwise`, one without steady steps.

        Raises:
            SettingError: the token budget is below `max_num_seqs`, or below `max_model_len`
                without chunked prefill (vLLM refuses both too); or victims of the priority order
                would be swapped, at which the engine fails.
        """
        tokens, seqs = limits = self.max_tokens(setup), self.max_num_seqs
        if tokens < seqs:
            raise SettingError(
                "max_num_batched_tokens",
                tokens,
                f"must be at least max_num_seqs; nearest: {seqs}, or max_num_seqs={tokens}",
            )
        if self.enable_chunked_prefill:
            return ChunkedPrefillScheduler(setup, limits, self.num_cpu_blocks(setup), stepwise)
        if tokens < setup.max_model_len:
            raise SettingError(
                "max_num_batched_tokens",
                tokens,
                "must be at least max_model_len when enable_chunked_prefill=false; "
                f"nearest: {setup.max_model_len}",
            )
        if self.preemption_mode == "swap" and isinstance(setup.order, Priority):
            # an evicted request joins `waiting` as SWAPPED, where only WAITING ones may be
            # (core/scheduler.py, _schedule_priority_preemption)
            raise SettingError(
                "preemption_mode",
                self.preemption_mode,
                "V0 cannot evict by swapping under the priority order; nearest: recompute",
            )
        return PrefillFirstScheduler(setup, limits, self.num_cpu_blocks(setup), stepwise)

    def max_tokens(self, setup: EngineSetup) -> int:
        """`max_num_batched_tokens` in force."""
        if self.max_num_batched_tokens is not None:
            return self.max_num_batched_tokens
        if self.enable_chunked_prefill:
            return CHUNKED_TOKENS
        return max(setup.max_model_len, CHUNKED_TOKENS)

    def num_cpu_blocks(self, setup: EngineSetup) -> int:
        """Blocks of the swap space; none if victims are recomputed.

        Raises:
            SettingError: they are swapped, and nobody has said how large a block is.
        """
        if self.preemption_mode == "recompute":
            return 0
        cache = setup.cache
        if cache.kv_bytes_per_token is None:
            raise SettingError(
                "preemption_mode", self.preemption_mode, "needs CacheSize.kv_bytes_per_token"
            )
        return gib_to_bytes(self.swap_space_gib) // (cache.kv_bytes_per_token * cache.block_size)

    def describe(self, setup: EngineSetup) -> str:
        """Engine, release and limits in one line."""
        mode = "chunked prefill" if self.enable_chunked_prefill else "prefill first"
        victims = "victims recomputed"
        if self.preemption_mode == "swap":
            blocks = self.num_cpu_blocks(setup)
            victims = f"victims swapped to {blocks} CPU blocks (copies cost no time here)"
        return (
            f"vLLM V0 scheduler 0.6.6, synchronous, {mode}; "
            f"max_num_batched_tokens {self.max_tokens(setup)}, max_num_seqs {self.max_num_seqs}, "
            f"max_model_len {setup.max_model_len}; {victims}; no prefix cache"
        )
