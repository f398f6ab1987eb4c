"""How long decodes of transformers continuous batching go on without a decision.

As long as everyone who runs gets a token per step and nobody who waits can get in, three things
can end it: the tokens of KV that a step reads, a page that is not there, and a margin below which
cached pages are evicted.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from servesim.kv.pages import PageCache
from servesim.records import Request, StepPlan
from servesim.scheduler.hf.batch import HFLimits
from servesim.scheduler.hf.scheduler import HFScheduler
from servesim.scheduler.state import RequestState


class SteadyHFScheduler(HFScheduler):
    """The scheduler with steady steps.

    A run of them ends before a step that fills a page which others may ask for: then it may be
    found, or turn out to be a copy, from the next step on.
    """

    _refused = False  # the last step let nobody in who waits, and nothing has changed since

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        super().add(request, predicted_tokens)
        self._refused = False
        return not self._shut()

    def _plan(self, now_ps: int) -> StepPlan:
        plan = super()._plan(now_ps)
        decodes_only = len(plan.work) == len(self._running) and all(
            work.num_tokens == 1 and work.samples for work in plan.work
        )
        self._refused = decodes_only and not plan.admitted
        return plan

    def _free(self, state: RequestState) -> None:
        super()._free(state)
        self._refused = False

    def _hash_full_pages(self, state: RequestState) -> bool:
        findable = super()._hash_full_pages(state)
        if findable:
            self._refused = False
        return findable

    def _settled(self) -> bool:
        return self._refused or self._shut()

    def _shut(self) -> bool:
        """Whether those who run, as long as they do, keep everyone who waits from being tried."""
        limits, pages, running = self._limits, self._pages, len(self._running)
        if not running:
            return False
        return (
            self._block_new_requests
            or running >= limits.max_requests_per_batch
            or running >= limits.max_batch_tokens
            or pages.num_free / pages.num_pages < limits.safety_margin
        )

    def _steps_that_fit(self, limit: int) -> int:
        pages = self._pages
        limit = _steps_that_read_fits(self._running, self._limits, limit)
        for state in self._running:
            unshared = pages.steps_unshared(state.table, state.computed)
            if unshared is not None and unshared < limit:
                limit = unshared
        phases = _Phases(self._running, self.block_size)
        return phases.steps_that_fit(limit, pages, self._limits.safety_margin)

    def _grow(self, steps: int) -> list[int]:
        pages = self._pages
        taken = _Phases(self._running, self.block_size).taken_by_step(steps)
        for state in self._running:
            computed = state.computed + steps
            pages.extend(state.table, computed)
            # the page that a request fills with its last step is not hashed
            pages.complete(state.table, computed - (self._left(state) == steps))
        return taken


def _steps_that_read_fits(running: Sequence[RequestState], limits: HFLimits, limit: int) -> int:
    """How many decode steps, up to `limit`, read no more KV than a step can.

    Either all of it fits the read index, or everyone is short enough to need none.
    """
    contexts = [state.computed for state in running]
    spare = limits.num_pages * limits.page_size - sum(contexts)
    by_index = spare // len(contexts) + 1
    by_table = limits.block_table_tokens - max(contexts)
    return max(0, min(limit, max(by_index, by_table)))


class _Phases:
    """Decoding requests by the number of steps until each takes its next page."""

    def __init__(self, running: Sequence[RequestState], page_size: int) -> None:
        self._page_size = page_size
        self._counts = Counter(-state.computed % page_size for state in running)

    def taken(self, steps: int) -> int:
        """Pages that so many steps take together."""
        size = self._page_size
        return sum(
            count * -((phase - steps) // size)
            for phase, count in self._counts.items()
            if phase < steps
        )

    def taken_by_step(self, steps: int) -> list[int]:
        """Pages that each of so many steps takes."""
        return [self._counts[step % self._page_size] for step in range(steps)]

    def steps_that_fit(self, limit: int, pages: PageCache, margin: float) -> int:
        """How many steps, up to `limit`, find their pages and leave cached ones alone."""

        def fails(steps: int) -> bool:
            if self.taken(steps) > pages.num_free:
                return True
            free_before_last = pages.num_free - self.taken(steps - 1)
            return pages.num_cached > 0 and free_before_last / pages.num_pages < margin

        return bisect_left(range(1, limit + 1), True, key=fails)
