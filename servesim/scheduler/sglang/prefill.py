"""The budgets of one SGLang prefill batch, and who fits them.

Source: SGLang 0.5.23, managers/schedule_policy.py (PrefillAdder), mem_cache/prefill_budget.py.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from servesim.kv.radix_cache import RadixCache
from servesim.scheduler.sglang.state import SGLangState

_NO_LIMIT = 1 << 62


class Verdict(Enum):
    """What comes after a candidate."""

    CONTINUE = auto()  # the next one is tried
    NO_TOKEN = auto()  # memory is spent
    OTHER = auto()  # a budget of tokens is spent


class Limits(NamedTuple):
    """Limits of a prefill batch.

    Attributes:
        max_prefill_tokens: tokens per batch.
        chunked_prefill_size: tokens per batch by which prompts are split; None splits none.
        clip_max_new_tokens: most reply tokens that admission expects of a request.
    """

    max_prefill_tokens: int
    chunked_prefill_size: int | None
    clip_max_new_tokens: int


class Prefill(NamedTuple):
    """One request of the batch: its tokens `first` … `first + num_tokens - 1` are computed."""

    state: SGLangState
    first: int
    num_tokens: int


class PrefillAdder:
    """Forms one prefill batch.

    Attributes:
        batch: the requests taken so far.
        chunked: the request of which a part is left for the next batch.
    """

    def __init__(
        self,
        cache: RadixCache,
        limits: Limits,
        running: Sequence[SGLangState],
        new_token_ratio: float,
        num_mixed_decodes: int,
    ) -> None:
        self._cache, self._clip = cache, limits.clip_max_new_tokens
        self._rem_input = limits.max_prefill_tokens - num_mixed_decodes
        self._splits = limits.chunked_prefill_size is not None
        self._rem_chunk = (limits.chunked_prefill_size or _NO_LIMIT) - num_mixed_decodes
        # charged against free and evictable slots; the second one without what may be decoded
        self._now = num_mixed_decodes
        self._in_all = num_mixed_decodes + sum(
            [
                min(state.max_new_tokens - state.generated, self._clip) * new_token_ratio
                for state in running
            ]
        )
        self.batch: list[Prefill] = []
        self.chunked: SGLangState | None = None

    @property
    def _rem_total(self) -> float:
        return self._cache.num_available - self._in_all

    def verdict(self) -> Verdict:
        """Whether anything is left of the budgets."""
        if self._rem_total <= 0 or self._cache.num_available - self._now <= 0:
            return Verdict.NO_TOKEN
        if self._rem_input <= 0 or self._rem_chunk <= 0:
            return Verdict.OTHER
        return Verdict.CONTINUE

    def continue_chunk(self, state: SGLangState) -> None:
        """Take the request that is in mid-prefill, whose next part must make progress.

        It takes a part even where memory looks short. Where not even a slot can be freed (with
        mixed batches, whose decodes go on meanwhile) the real engine fails; here it sits out.
        """
        chunk = max(self._rem_chunk, self._cache.page_size)
        fits = min(chunk, int(self._rem_total))
        left = state.known - state.computed
        in_last_page = -state.computed % self._cache.page_size
        most = min(fits if fits > 0 else chunk, self._cache.num_available + in_last_page)
        if most <= 0:
            self.chunked = state
            return
        if left > most:
            self.chunked = state
        self._take(state, min(left, most), 0 if left > most else state.max_new_tokens)

    def add(self, state: SGLangState) -> Verdict:
        """Try the next of the queue; the verdict is about the one after it, if it was taken."""
        cache = self._cache
        match = cache.match(state.row, state.known - 1)
        state.matched = match.num_tokens
        extend = state.known - match.num_tokens
        expected = min(max(state.max_new_tokens - state.generated, 0), self._clip)
        cache.stand_on(state.row, match)  # what is matched must not count as evictable
        refused = self._refusal(extend, extend + expected + cache.page_size)
        if refused is None and cache.ceil(extend) > self._rem_chunk:
            extend = self._rem_chunk - self._rem_chunk % cache.page_size
            refused = None if extend > 0 else Verdict.OTHER
        if refused is not None:
            cache.step_off(state.row)
            return refused
        state.computed = match.num_tokens
        final = match.num_tokens + extend == state.known
        if not final:
            self.chunked = state
        self._take(state, extend, state.max_new_tokens if final else 0)
        return self.verdict()

    def _refusal(self, extend: int, total: int) -> Verdict | None:
        if total >= self._rem_total:
            return Verdict.NO_TOKEN
        if not self._splits and self.batch and self._cache.ceil(extend) >= self._rem_input:
            return Verdict.OTHER  # without chunks, the first one may exceed the cap
        return None

    def _take(self, state: SGLangState, num_tokens: int, max_new_tokens: int) -> None:
        """Charge the budgets: whole pages, and a page more for what rounding may cost."""
        self.batch.append(Prefill(state, state.computed, num_tokens))
        state.computed += num_tokens
        paged = self._cache.ceil(num_tokens)
        self._now += paged + self._cache.page_size
        self._in_all += paged + self._cache.page_size + min(max_new_tokens, self._clip)
        self._rem_input -= paged
        self._rem_chunk -= paged
