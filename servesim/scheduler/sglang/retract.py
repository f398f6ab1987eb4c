"""Who loses its KV when a decode step does not fit.

Source: SGLang 0.5.23, managers/schedule_batch.py (`retract_decode`, `release_req`).
"""

from servesim.kv.radix_cache import RadixCache
from servesim.policies.victim.base import Running, Victim
from servesim.scheduler.sglang.decode import DecodeMemory
from servesim.scheduler.sglang.ratio import RETRACT_DECODE_STEPS
from servesim.scheduler.sglang.state import SGLangState
from servesim.scheduler.views import running_view


class Retraction:
    """The engine's rule, or a victim policy's.

    The engine keeps those with the most generated tokens and, among equals, those with the
    shortest prompts; among these the earlier in the batch.
    """

    def __init__(self, cache: RadixCache, victim: Victim | None) -> None:
        self._cache, self._victim = cache, victim
        self._memory = DecodeMemory(cache)
        self._num_retracted = 0

    def retract(
        self, running: list[SGLangState], keep: int
    ) -> tuple[list[SGLangState], list[SGLangState]]:
        """Retract at least one and until a decode step of the others fits, but for `keep`.

        What a victim owns is freed and does not enter the tree; what it had locked can be evicted,
        and is at once as far as the next decode steps of the others need it.

        Returns:
            those kept, in the order of preference, and the victims.
        """
        kept = self._by_preference(running)
        victims: list[SGLangState] = []
        while len(kept) > keep and (not victims or not self._memory.fits(kept)):
            state = kept.pop()
            self._cache.release(state.row, state.computed, keep=False)
            self._cache.free_up(len(kept) * RETRACT_DECODE_STEPS)
            self._num_retracted += 1
            state.lose_kv(self._num_retracted)
            victims.append(state)
        return kept, victims

    def _by_preference(self, running: list[SGLangState]) -> list[SGLangState]:
        victim = self._victim
        if victim is None:
            return sorted(running, key=lambda s: (-s.generated, s.request.prompt_tokens))
        return sorted(running, key=lambda s: (victim.key(self._view(s)), s.admission_order))

    def _view(self, state: SGLangState) -> Running:
        pages = self._cache.ceil(state.computed) // self._cache.page_size
        return running_view(state, pages, preempted=state.requeued > 0)
