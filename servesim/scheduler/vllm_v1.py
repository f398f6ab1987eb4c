"""vLLM V1, release 0.33, synchronous: the engine's settings under its own names."""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.vllm_defaults import server_defaults
from servesim.scheduler.vllm_v1_grouped import GroupedVllmV1Scheduler
from servesim.scheduler.vllm_v1_scheduler import VllmV1Scheduler


@dataclass(frozen=True, slots=True)
class VllmV1:
    """Engine settings under vLLM's own names.

    Attributes:
        max_num_batched_tokens: tokens per step; null takes the API server's default for the GPU.
        max_num_seqs: running requests; null takes the API server's default for the GPU.
        long_prefill_token_threshold: tokens per request and step, 0 for no limit; a request
            alone in the engine is exempt.
        enable_chunked_prefill: whether a prompt may be split over steps.
        scheduler_reserve_full_isl: admit only when all known tokens of a request fit now.
        watermark: share of the blocks kept free at admission while others run.
        num_speculative_tokens: drafts per verification, 0 for none.
        num_lookahead_tokens: extra slots reserved for the drafter.
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    num_speculative_tokens: int = 0
    num_lookahead_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), at_least=1)
        for name in ("enable_chunked_prefill", "scheduler_reserve_full_isl"):
            checks.flag(name, getattr(self, name))
        for name in (
            "long_prefill_token_threshold",
            "num_speculative_tokens",
            "num_lookahead_tokens",
        ):
            checks.whole(name, getattr(self, name))
        checks.fraction("watermark", self.watermark)

    def start(self, setup: EngineSetup, stepwise: bool = False) -> VllmV1Scheduler:
        """A scheduler with empty queues.

        Args:
            setup: see `EngineSetup`.
            stepwise: plan every request of every step one by one, as drafts need it anyway.

        Raises:
            SettingError: where the token budget is below `max_num_seqs`, or below
                `max_model_len` without chunked prefill (vLLM refuses both too).
        """
        tokens, seqs = self.limits(setup)
        if tokens < seqs:
            raise SettingError(
                "max_num_batched_tokens",
                tokens,
                f"must be at least max_num_seqs; nearest: {seqs}, or max_num_seqs={tokens}",
            )
        if not self.enable_chunked_prefill and tokens < setup.max_model_len:
            raise SettingError(
                "max_num_batched_tokens",
                tokens,
                "must be at least max_model_len when enable_chunked_prefill=false; "
                f"nearest: {setup.max_model_len}",
            )
        one_by_one = stepwise or self.num_speculative_tokens or self.num_lookahead_tokens
        kind = VllmV1Scheduler if one_by_one else GroupedVllmV1Scheduler
        return kind(self, setup, tokens, seqs)

    def limits(self, setup: EngineSetup) -> tuple[int, int]:
        """(max_num_batched_tokens, max_num_seqs) in force; only defaults are adjusted."""
        tokens, seqs = server_defaults(setup.gpu)
        if not self.enable_chunked_prefill:
            tokens = max(tokens, setup.max_model_len)
        if self.max_num_seqs is not None:
            seqs = self.max_num_seqs
        if self.max_num_batched_tokens is not None:
            tokens = self.max_num_batched_tokens
        else:
            tokens = min(tokens, seqs * setup.max_model_len)
        if self.max_num_seqs is None:
            seqs = min(seqs, tokens)
        return tokens, seqs

    def describe(self, setup: EngineSetup) -> str:
        """Engine, release and limits in one line."""
        tokens, seqs = self.limits(setup)
        return (
            f"vLLM V1 scheduler 0.33, synchronous; max_num_batched_tokens {tokens}, "
            f"max_num_seqs {seqs}, max_model_len {setup.max_model_len}"
        )
