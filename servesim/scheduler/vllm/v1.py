"""vLLM V1: the engine's settings under its own names, and which release's rules it follows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from servesim import checks
from servesim.errors import SettingError
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.vllm.defaults import server_defaults
from servesim.scheduler.vllm.releases import NEWEST, first_with, profile_of
from servesim.scheduler.vllm.switches import Switches
from servesim.scheduler.vllm.v1_async import AsyncVllmV1Scheduler
from servesim.scheduler.vllm.v1_async_grouped import GroupedAsyncVllmV1Scheduler
from servesim.scheduler.vllm.v1_fast_lane import FastLaneVllmV1Scheduler
from servesim.scheduler.vllm.v1_scheduler import VllmV1Scheduler


@dataclass(frozen=True, slots=True)
class VllmV1:
    """Engine settings under vLLM's own names.

    Attributes:
        release: of vLLM, as text; one without a profile gets the rules of another (`profile_of`).
        async_scheduling: plan a step while the one before it runs.
        max_num_batched_tokens: tokens per step; null takes the API server's default for the GPU.
        max_num_seqs: running requests; null takes the API server's default for the GPU.
        long_prefill_token_threshold: tokens per request and step, 0 for no limit.
        enable_chunked_prefill: whether a prompt may be split over steps.
        scheduler_reserve_full_isl: admit only when all known tokens of a request fit now; nothing
            before 0.20.
        watermark: share of the blocks kept free at admission while others run; since 0.32.
        num_speculative_tokens: drafts per verification, 0 for none.
        num_lookahead_tokens: extra slots reserved for the drafter.
        eagle_block_drop: compute the last block that a prefix look-up finds anew, as drafters do
            that need the hidden state before the last token (EAGLE, MTP).
        switches: single behaviours set otherwise than the release has them, by name; null for none.
    """

    # experts may be split over data-parallel ranks, which then step together
    shares_experts: ClassVar[bool] = True

    release: str = NEWEST
    async_scheduling: bool = False
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    num_speculative_tokens: int = 0
    num_lookahead_tokens: int = 0
    eagle_block_drop: bool = False
    switches: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) is not None:
                checks.whole(name, getattr(self, name), at_least=1)
        for name in (
            "async_scheduling",
            "enable_chunked_prefill",
            "scheduler_reserve_full_isl",
            "eagle_block_drop",
        ):
            checks.flag(name, getattr(self, name))
        for name in (
            "long_prefill_token_threshold",
            "num_speculative_tokens",
            "num_lookahead_tokens",
        ):
            checks.whole(name, getattr(self, name))
        checks.fraction("watermark", self.watermark)
        self._check_release()

    def _check_release(self) -> None:
        """Refuse what the release does not have."""
        switches = self.switches_in_force()
        if self.watermark > 0 and not switches.admission_watermark:
            since = first_with("admission_watermark")
            reason = f"vLLM {self.release} has no such option; nearest: 0.0, or release={since}"
            raise SettingError("watermark", self.watermark, reason)
        drafts = self.num_speculative_tokens
        if self.async_scheduling and drafts and not switches.async_with_drafts:
            since = first_with("async_with_drafts")
            raise SettingError(
                "async_scheduling",
                self.async_scheduling,
                f"vLLM {self.release} refuses it with num_speculative_tokens={drafts}; "
                f"nearest: async_scheduling=false, or release={since}",
            )

    def switches_in_force(self) -> Switches:
        """Those of the release, but for the ones set otherwise.

        Raises:
            SettingError: a release that is none, or a value that a switch cannot have.
            UnknownChoiceError: a switch that there is not.
        """
        changes = self.switches
        if changes is not None and not isinstance(changes, Mapping):
            reason = "must be null or switches by name, such as {unkeyed_to_head: false}"
            raise SettingError("switches", changes, reason)
        return profile_of(self.release).switches.but(changes or {})

    @property
    def overlaps_host(self) -> bool:
        """With asynchronous scheduling."""
        return self.async_scheduling

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
        by_steps = stepwise or bool(self._looks_at_every_step())
        if self.async_scheduling:
            ahead = AsyncVllmV1Scheduler if by_steps else GroupedAsyncVllmV1Scheduler
            return ahead(self, setup, tokens, seqs)
        if by_steps:
            return VllmV1Scheduler(self, setup, tokens, seqs)
        return FastLaneVllmV1Scheduler(self, setup, tokens, seqs)

    def _looks_at_every_step(self) -> str:
        """Why no step can be skipped, or ""."""
        if self.num_speculative_tokens or self.num_lookahead_tokens or self.eagle_block_drop:
            return "speculation"
        return ""

    def limits(self, setup: EngineSetup) -> tuple[int, int]:
        """(max_num_batched_tokens, max_num_seqs) in force; only defaults are adjusted."""
        large_class = self.switches_in_force().defaults_know_160_gib
        tokens, seqs = server_defaults(setup.gpu, large_class)
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
        """Engine, release and limits in one line, and what in it a user may not expect."""
        tokens, seqs = self.limits(setup)
        asked, switches = profile_of(self.release), self.switches_in_force()
        mode = "asynchronous" if self.async_scheduling else "synchronous"
        parts = [
            f"vLLM V1 scheduler {asked.describe()}, {mode}",
            f"max_num_batched_tokens {tokens}, max_num_seqs {seqs}, "
            f"max_model_len {setup.max_model_len}",
        ]
        if changed := switches.differences(asked.switches):
            parts.append(f"unlike {asked.profile}: {', '.join(changed)}")
        if self.scheduler_reserve_full_isl and not switches.full_sequence_gate:
            since = first_with("full_sequence_gate")
            parts.append(f"scheduler_reserve_full_isl has no effect before {since}")
        if why := self._looks_at_every_step():
            parts.append(f"looks at every step ({why})")
        return "; ".join(parts)
