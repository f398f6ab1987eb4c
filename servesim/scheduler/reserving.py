"""Engines before paging: a request's KV slots are reserved up front, for its longest reply.

So nothing grows, nobody is ever preempted, and what a short reply does not reach stays unused.
The reservations are those of the baselines in the PagedAttention paper (Kwon et al., SOSP 2023,
arXiv 2309.06180, section 6.1): Orca (Max), (Pow2) and (Oracle); `max_tokens` is that of Orca
itself (Yu et al., OSDI 2022).

`pow2` and `oracle` look at the true length of a reply, which no policy may: they are baselines,
stated as an exception, and no engine that could be built.
"""

from servesim import checks
from servesim.errors import SettingError
from servesim.kv.slots import SlotRange, Slots
from servesim.records import Admission, Request, Work
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.queued import QueuedEngine
from servesim.scheduler.rejections import beyond_context
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.defaults import server_defaults
from servesim.units import ps_to_seconds

RESERVATIONS = ("max_model_len", "max_tokens", "pow2", "oracle")
_IN_WORDS = {
    "max_model_len": "max_model_len",
    "max_tokens": "prompt + max_tokens",
    "pow2": "prompt + true reply length up to the next power of two (a baseline)",
    "oracle": "prompt + true reply length (a baseline)",
}


def reserved_slots(reservation: str, request: Request, max_model_len: int) -> int:
    """Slots that a request reserves.

    The last token of a reply gets no KV, so one slot stays unused even under `oracle`.

    Args:
        reservation: one of `RESERVATIONS`. `pow2` takes the next power of two of the reply
            length (25 tokens reserve 32), and at most `max_model_len` with the prompt.
        request: who.
        max_model_len: longest context, tokens.
    """
    reply = min(request.output_tokens, request.max_tokens)
    slots = {
        "max_model_len": max_model_len,
        "max_tokens": request.prompt_tokens + request.max_tokens,
        "pow2": request.prompt_tokens + (1 << (reply - 1).bit_length()),
        "oracle": request.prompt_tokens + reply,
    }
    return min(slots[reservation], max_model_len)


def check_settings(max_num_seqs: int | None, reservation: str) -> None:
    """What the profiles of such engines have in common.

    Raises:
        ServesimError: naming the setting.
    """
    if max_num_seqs is not None:
        checks.whole("max_num_seqs", max_num_seqs, at_least=1)
    checks.choice("reservation", reservation, RESERVATIONS)


def check_setup(setup: EngineSetup, reservation: str) -> None:
    """Refuse a set-up in which such an engine could serve nobody, or a victim policy.

    Raises:
        SettingError: naming the setting and the nearest one that works.
    """
    setup.refuse_victim_policy("memory is reserved up front, so nobody is preempted")
    slots, longest = num_slots(setup.cache), setup.max_model_len
    if reservation == "max_model_len" and longest > slots:
        reason = f"max_model_len {longest} is more than the {slots} token slots of the KV cache"
        raise SettingError("reservation", reservation, f"{reason}; nearest: max_tokens")


def num_slots(cache: CacheSize) -> int:
    """Token slots of a cache: these engines know no blocks."""
    return (cache.num_gpu_blocks - 1) * cache.block_size


def seats(max_num_seqs: int | None, setup: EngineSetup) -> int:
    """`max_num_seqs` in force; null is that of vLLM's API server, to compare like with like."""
    return server_defaults(setup.gpu)[1] if max_num_seqs is None else max_num_seqs


def limits_in_words(reservation: str, max_seqs: int, setup: EngineSetup) -> str:
    """The end of a profile's description."""
    return (
        f"slots reserved per request: {_IN_WORDS[reservation]}; no preemption, no prefix cache; "
        f"max_num_seqs {max_seqs}, {num_slots(setup.cache)} token slots, "
        f"max_model_len {setup.max_model_len}"
    )


class ReservingEngine(QueuedEngine):
    """A `QueuedEngine` whose blocks are token slots, all taken at admission.

    A profile adds `_plan` and `_settled`.

    Args:
        setup: see `EngineSetup`.
        reservation: one of `RESERVATIONS`.
        max_seqs: most running requests.
        slots: the memory.
        stepwise: whether to have no steady steps.
    """

    def __init__(
        self, setup: EngineSetup, reservation: str, max_seqs: int, slots: Slots, stepwise: bool
    ) -> None:
        super().__init__(setup, stepwise)
        self._reservation = reservation
        self._max_seqs = max_seqs
        self._slots = slots
        self._held: dict[int, SlotRange] = {}

    @property
    def kv_blocks(self) -> int:
        """Token slots that requests can hold."""
        return self._slots.capacity

    @property
    def kv_blocks_used(self) -> int:
        """Token slots reserved."""
        return self._slots.num_used

    @property
    def kv_slots_unused(self) -> int:
        """Slots reserved less tokens computed by those who run."""
        return self._slots.num_used - sum(state.computed for state in self._running)

    def reject_reason(self, request: Request) -> str | None:
        """Too long for the engine, or a reservation that the whole cache could not meet."""
        size, slots = self._size(request), self._slots.capacity
        too_large = f"slots to reserve = {size} > {slots} slots of KV cache"
        return beyond_context(request, self._max_model_len) or (too_large if size > slots else None)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if it cannot join before somebody ends."""
        super().add(request, predicted_tokens)
        return not (self._running and self._settled())

    def _size(self, request: Request) -> int:
        return reserved_slots(self._reservation, request, self._max_model_len)

    def _decode_all(self) -> list[Work]:
        """A token for everyone who runs."""
        work = []
        for state in self._running:
            work.append(Work(state.request.rid, 1, state.computed, 0, True))
            state.computed = state.known
        return work

    def _has_seat(self, tokens: int) -> bool:
        """Whether the head of the queue may join a step of so many tokens, memory aside."""
        return len(self._running) < self._max_seqs

    def _head_fits(self) -> bool:
        return self._slots.fits(self._size(self._waiting.head().request))

    def _join(self, now_ps: int, tokens: int) -> list[tuple[Work, Admission]]:
        """Admit whole prompts to a step of so many tokens; head-of-line, nobody overtakes."""
        waiting, joined = self._waiting, []
        if len(self._running) < self._max_seqs:
            waiting.refresh(ps_to_seconds(now_ps))
        while waiting.entries and self._has_seat(tokens):
            state = waiting.head()
            rid, prompt = state.request.rid, state.known
            held = self._slots.take(self._size(state.request))
            if held is None:
                break
            waiting.pop()
            self._held[rid] = held
            self._running.append(state)
            state.computed = prompt
            tokens += prompt
            joined.append((Work(rid, prompt, 0, 0, True), Admission(rid, 0, False)))
        return joined

    def _free(self, state: RequestState) -> None:
        self._slots.give_back(self._held.pop(state.request.rid))

    def _steps_that_fit(self, limit: int) -> int:
        """All: no step takes memory."""
        return limit
