"""Request-level batching, as in FasterTransformer: a batch is served to its end, then the next.

Source: Sarathi-Serve's baseline `faster_transformer_scheduler.py`.

Nobody joins a batch. A request that has ended leaves, but its place and its slots stay idle
until the whole batch has drained, as the batch's buffers are allocated and freed together.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.kv.slots import PooledSlots
from servesim.records import StepPlan
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.reserving import (
    ReservingEngine,
    check_settings,
    check_setup,
    limits_in_words,
    num_slots,
    seats,
)
from servesim.scheduler.state import RequestState


@dataclass(frozen=True, slots=True)
class Static:
    """Engine settings; names as in vLLM where it has them.

    Attributes:
        max_num_seqs: requests of a batch; null takes vLLM's default for the GPU.
        reservation: slots per request, as for `Orca`. A batch always starts in an empty cache, so
            there is no fragmentation.
        pad_to_longest: whether the first iteration takes the time of a batch in which all
            prompts are as long as the longest. Token counts in the records stay true.
    """

    max_num_seqs: int | None = None
    reservation: str = "max_tokens"
    pad_to_longest: bool = True

    def __post_init__(self) -> None:
        check_settings(self.max_num_seqs, self.reservation)
        checks.flag("pad_to_longest", self.pad_to_longest)

    @property
    def overlaps_host(self) -> bool:
        """No: a batch is chosen when the one before it is over."""
        return False

    def start(self, setup: EngineSetup, stepwise: bool = False) -> "StaticScheduler":
        """A scheduler with empty queues.

        Raises:
            SettingError: a victim policy, or a cache that is too small for `max_model_len`
                reservations.
        """
        check_setup(setup, self.reservation)
        return StaticScheduler(self, setup, stepwise)

    def describe(self, setup: EngineSetup) -> str:
        """What it is and the limits in force, in one line."""
        padding = "padded to the longest" if self.pad_to_longest else "not padded"
        seqs = seats(self.max_num_seqs, setup)
        return (
            f"static batches (FasterTransformer), prompts {padding}; "
            f"{limits_in_words(self.reservation, seqs, setup)}; slots freed when the batch ends"
        )


class StaticScheduler(ReservingEngine):
    """One such engine in one run.

    Slots of a request that has ended count as held and unused until the batch has drained.
    """

    def __init__(self, settings: Static, setup: EngineSetup, stepwise: bool) -> None:
        slots = PooledSlots(num_slots(setup.cache))
        max_seqs = seats(settings.max_num_seqs, setup)
        super().__init__(setup, settings.reservation, max_seqs, slots, stepwise)
        self._pads = settings.pad_to_longest

    def _plan(self, now_ps: int) -> StepPlan:
        if self._running:
            return StepPlan(tuple(self._decode_all()))
        joined = self._join(now_ps, 0)
        work = tuple(prompt for prompt, _ in joined)
        longest = max((prompt.num_tokens for prompt in work), default=0)
        admitted = tuple(admission for _, admission in joined)
        return StepPlan(work, admitted, padded_to=longest if self._pads else 0)

    def _settled(self) -> bool:
        """Nobody joins those who run."""
        return True

    def _free(self, state: RequestState) -> None:
        """Not yet."""

    def _end(self, ended: list[RequestState]) -> None:
        super()._end(ended)
        if not self._running:
            for held in self._held.values():
                self._slots.give_back(held)
            self._held.clear()
