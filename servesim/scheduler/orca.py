"""Orca: iteration-level scheduling with memory reserved up front.

Sources: Yu et al., OSDI 2022; as a baseline of Sarathi-Serve (`orca_scheduler.py`, which reserves
`max_model_len`) and of the PagedAttention paper (arXiv 2309.06180).

In every iteration all running requests decode, and whole prompts join them, first come, first
served, while there are seats and memory. Long prompts therefore hold up everyone's next token.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.kv.slots import ContiguousSlots, PooledSlots, Slots
from servesim.records import Request, StepPlan
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.reserving import (
    ReservingEngine,
    check_settings,
    check_setup,
    limits_in_words,
    num_slots,
    seats,
)


@dataclass(frozen=True, slots=True)
class Orca:
    """Engine settings; names as in vLLM where it has them.

    Attributes:
        max_num_seqs: running requests; null takes vLLM's default for the GPU.
        max_num_batched_tokens: tokens per iteration, to which whole prompts are admitted; null
            for no limit, as in the sources.
        reservation: slots per request: `max_model_len`, `max_tokens` (prompt + cap, Orca's own),
            `pow2` or `oracle` (prompt + true reply; baselines that know what none can know).
        contiguous: whether a request's slots must lie side by side (first fit), so that memory
            fragments; false counts all free slots, which favours Orca. The paper assumes a buddy
            allocator instead.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    reservation: str = "max_tokens"
    contiguous: bool = True

    def __post_init__(self) -> None:
        check_settings(self.max_num_seqs, self.reservation)
        if self.max_num_batched_tokens is not None:
            checks.whole("max_num_batched_tokens", self.max_num_batched_tokens, at_least=1)
        checks.flag("contiguous", self.contiguous)

    @property
    def overlaps_host(self) -> bool:
        """No: a batch is chosen when the one before it is over."""
        return False

    def start(self, setup: EngineSetup, stepwise: bool = False) -> "OrcaScheduler":
        """A scheduler with empty queues.

        Raises:
            SettingError: a victim policy, a cache that is too small for `max_model_len`
                reservations, or a token limit below `max_num_seqs`.
        """
        check_setup(setup, self.reservation)
        max_seqs, tokens = seats(self.max_num_seqs, setup), self.max_num_batched_tokens
        if tokens is not None and tokens < max_seqs:
            reason = f"must be at least max_num_seqs; nearest: {max_seqs}, or max_num_seqs={tokens}"
            raise SettingError("max_num_batched_tokens", tokens, reason)
        return OrcaScheduler(self, setup, stepwise)

    def describe(self, setup: EngineSetup) -> str:
        """What it is and the limits in force, in one line."""
        how = "contiguous, first fit" if self.contiguous else "anywhere in one pool"
        tokens = self.max_num_batched_tokens
        limit = "" if tokens is None else f", max_num_batched_tokens {tokens}"
        seqs = seats(self.max_num_seqs, setup)
        return (
            "Orca, iteration-level batches of whole prompts and decodes; "
            f"{limits_in_words(self.reservation, seqs, setup)}{limit}; slots {how}"
        )


class OrcaScheduler(ReservingEngine):
    """One Orca engine in one run."""

    def __init__(self, settings: Orca, setup: EngineSetup, stepwise: bool) -> None:
        kind = ContiguousSlots if settings.contiguous else PooledSlots
        slots: Slots = kind(num_slots(setup.cache))
        max_seqs = seats(settings.max_num_seqs, setup)
        super().__init__(setup, settings.reservation, max_seqs, slots, stepwise)
        self._max_tokens = settings.max_num_batched_tokens

    def reject_reason(self, request: Request) -> str | None:
        """Also a prompt that no iteration could take."""
        tokens, most = request.prompt_tokens, self._max_tokens
        if most is not None and tokens > most:
            return f"prompt = {tokens} > max_num_batched_tokens {most}"
        return super().reject_reason(request)

    def _plan(self, now_ps: int) -> StepPlan:
        work = self._decode_all()
        joined = self._join(now_ps, len(work))
        work += [prompt for prompt, _ in joined]
        return StepPlan(tuple(work), tuple(admission for _, admission in joined))

    def _has_seat(self, tokens: int) -> bool:
        most = self._max_tokens
        fits = most is None or tokens + self._waiting.head().known <= most
        return fits and super()._has_seat(tokens)

    def _settled(self) -> bool:
        """No seat; or the head, which stays the head, lacks tokens or memory."""
        running = len(self._running)
        if running >= self._max_seqs:
            return True
        if self._waiting.changes_with_time:
            return False
        return not (self._has_seat(running) and self._head_fits())
