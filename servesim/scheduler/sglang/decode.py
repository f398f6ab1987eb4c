"""The memory of SGLang's decode steps: a token for everyone who runs.

Source: SGLang 0.5.23, managers/schedule_batch.py (`new_tokens_required_next_decode`,
`check_decode_mem`), mem_cache/allocation.py (`alloc_paged_token_slots_decode`).
"""

from collections.abc import Sequence

from servesim.kv.radix_cache import RadixCache
from servesim.scheduler.sglang.state import SGLangState

Running = Sequence[SGLangState]


class DecodeMemory:
    """Takes slots from the radix cache for decode steps."""

    def __init__(self, cache: RadixCache) -> None:
        self._cache = cache

    def fits(self, running: Running) -> bool:
        """Evict as the next step needs; whether there is room for it."""
        return self._cache.free_up(self._growth(running))

    def take(self, running: Running) -> None:
        """The slots of one step, for which there is room."""
        self._ask(len(running))
        self._cache.take(self._growth(running))

    def take_steps(self, running: Running, steps: int) -> list[int]:
        """The slots of so many steps, for which there is room; pages that each of them took."""
        if not steps:
            return []
        due, page_size = self._pages_due(running), self._cache.page_size
        taken = [due[step % page_size] for step in range(steps)]
        # what is evicted by the last step is evicted, whenever it is asked for
        self._ask(sum(taken) - taken[-1] + len(running))
        self._cache.take(sum(taken) * page_size)
        return taken

    def steps_that_fit(self, running: Running, limit: int) -> int:
        """How many steps, up to `limit`, there is room for."""
        page_size = self._cache.page_size
        num_pages = self._cache.num_available // page_size
        rounds = num_pages // len(running)  # of page_size steps, a page for each in a round
        if limit <= rounds * page_size:
            return limit
        due = self._pages_due(running)
        steps, left = rounds * page_size, num_pages - rounds * len(running)
        while steps < limit and due[steps % page_size] <= left:
            left -= due[steps % page_size]
            steps += 1
        return steps

    def _ask(self, num_pages: int) -> None:
        """Evict until so many pages are free or nothing is left to evict.

        The engine asks for a page for everyone who runs, though only some need one.
        """
        self._cache.free_up(num_pages * self._cache.page_size)

    def _growth(self, running: Running) -> int:
        """Slots that a token for each needs."""
        if self._cache.page_size == 1:
            return len(running)
        return sum(self._cache.growth(state.computed, 1) for state in running)

    def _pages_due(self, running: Running) -> list[int]:
        """Pages that each of the next `page_size` steps needs; then it repeats."""
        due = [0] * self._cache.page_size
        for state in running:
            due[-state.computed % self._cache.page_size] += 1
        return due
