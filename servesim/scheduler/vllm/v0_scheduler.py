"""vLLM V0 scheduler, release 0.6.6: prompts first, or decodes and chunks of prompts together.

Source of every rule: vLLM 0.6.6.post1 `core/scheduler.py` and `core/block_manager.py`. Every
request is a group of one sequence, and output is processed before the next step is planned
(`--disable-async-output-proc`).
"""

from servesim.policies.order.priority import Priority
from servesim.records import StepPlan
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.paged import PagedEngine
from servesim.scheduler.paged_batch import Batch
from servesim.scheduler.state import RequestState
from servesim.units import ps_to_seconds


class VllmV0Scheduler(PagedEngine):
    """What both modes share: victims are recomputed, or swapped to CPU blocks that are free."""

    def __init__(
        self,
        setup: EngineSetup,
        limits: tuple[int, int],
        num_cpu_blocks: int = 0,
        stepwise: bool = False,
    ) -> None:
        super().__init__(setup, *limits, stepwise)
        self._swapped: list[RequestState] = []
        self._cpu_blocks: dict[int, int] = {}  # by request
        self._free_cpu_blocks = num_cpu_blocks

    @property
    def num_waiting(self) -> int:
        """Requests outside: in the waiting queue or swapped out."""
        return len(self._waiting.entries) + len(self._swapped)

    @property
    def swapped(self) -> tuple[int, ...]:
        """Requests swapped out, in the order in which they will be back."""
        return tuple(state.request.rid for state in self._swapped)

    @property
    def num_free_cpu_blocks(self) -> int:
        """Blocks of the swap space that nobody holds."""
        return self._free_cpu_blocks

    def _lose(self, victim: RequestState) -> None:
        """Swap a victim out if the CPU has room for it and its next token.

        Where the swap space is full, the engine aborts, and the rest of a prompt that is longer
        than the token budget never comes back; here such victims are recomputed, as all of them
        are without a swap space.
        """
        no_room = self._kv.blocks_for(victim.known) > self._free_cpu_blocks
        if no_room or victim.known - victim.computed > self._max_tokens:
            super()._lose(victim)
            return
        blocks = victim.table.num_blocks
        self._free_cpu_blocks -= blocks
        self._cpu_blocks[victim.request.rid] = blocks
        self._kv.release(victim.table)
        victim.resumes = True

    def _requeue(self, batch: Batch, now_s: float) -> None:
        """The step's victims join their queue."""
        for victim in batch.preempted:
            if victim.request.rid in self._cpu_blocks:
                self._swapped.append(victim)
            else:
                self._waiting.push(victim, now_s)

    def _swap_in(self, batch: Batch) -> list[RequestState]:
        """Bring back who was swapped out, first come first served; they run at once.

        The rest of a prompt is not cut into chunks here.
        """
        back: list[RequestState] = []
        while self._swapped and len(self._running) + len(back) < self._max_seqs:
            state = self._swapped[0]
            left = state.known - state.computed
            if left > batch.budget or not self._fits(state):
                break
            back.append(self._swapped.pop(0))
            self._free_cpu_blocks += self._cpu_blocks.pop(state.request.rid)
            self._admit(batch, state, left)
        return back

    def _settled(self) -> bool:
        """Whether the queues let nobody in until a running request ends."""
        if len(self._running) >= self._max_seqs:
            return True
        if self._swapped and self._fits(self._swapped[0]):
            return False
        return self._refuses_head()


class PrefillFirstScheduler(VllmV0Scheduler):
    """Chunked prefill off: a step is a batch of whole prompts, or else a token for everyone.

    No prompt is admitted before all who are swapped out are back. Under the priority order,
    running requests are evicted for a more urgent head of the queue, the least urgent first,
    whatever the victim policy. The queue is in order at every step; the engine sorts it only in
    steps without a prefill.
    """

    def __init__(
        self,
        setup: EngineSetup,
        limits: tuple[int, int],
        num_cpu_blocks: int = 0,
        stepwise: bool = False,
    ) -> None:
        super().__init__(setup, limits, num_cpu_blocks, stepwise)
        self._by_priority = isinstance(setup.order, Priority)

    def _plan(self, now_ps: int) -> StepPlan:
        batch, now_s = Batch(self._max_tokens), ps_to_seconds(now_ps)
        prompts = [] if self._swapped else self._admit_prompts(batch, now_s)
        if prompts:
            self._running += prompts
            return self._planned(batch, prompts)
        if self._by_priority:
            self._evict_for_head(batch)
        self._continue_running(batch)
        self._requeue(batch, now_s)
        if not batch.preempted:
            self._running += self._swap_in(batch)
        return self._planned(batch, self._running)

    def _prompt_tokens(self, batch: Batch, state: RequestState) -> int:
        """The whole prompt; 0 if it must wait."""
        return state.known if state.known <= batch.budget else 0

    def _evict_for_head(self, batch: Batch) -> None:
        """Sort who runs by urgency; the least urgent make room for a head that is more urgent."""
        self._running.sort(key=_urgency)
        if not self._waiting.entries:
            return
        head, running = self._waiting.head(), self._running
        while running and _urgency(running[-1]) > _urgency(head):
            if len(running) < self._max_seqs and self._fits(head):
                return
            self._preempt(batch, running.pop())

    def _settled(self) -> bool:
        waiting, running = self._waiting, self._running
        if self._by_priority and waiting.entries and running:
            worst = max(map(_urgency, running))
            if worst > _urgency(waiting.head()):
                return False
        return super()._settled()

    def _refuses_head(self) -> bool:
        return bool(self._swapped) or super()._refuses_head()


class ChunkedPrefillScheduler(VllmV0Scheduler):
    """Chunked prefill on: who runs, then who was swapped out, then new prompts share the budget.

    At most one prompt is unfinished, and it is the last of the list: nobody is let in behind a
    prompt that the budget has cut. The engine knows no priorities here, so the priority order
    ranks the queue and nothing else.
    """

    def _plan(self, now_ps: int) -> StepPlan:
        batch, now_s = Batch(self._max_tokens), ps_to_seconds(now_ps)
        self._continue_running(batch)
        running = self._running
        back = [] if batch.preempted else self._swap_in(batch)
        self._running = [*running, *back]
        prompts = self._admit_prompts(batch, now_s)
        self._requeue(batch, now_s)  # a victim queues up behind the admissions of its step
        decodes, chunks = _apart(running)
        back_decodes, back_chunks = _apart(back)
        self._running = [*back_decodes, *back_chunks, *decodes, *chunks, *prompts]
        return self._planned(batch, [*prompts, *chunks, *back_chunks, *decodes, *back_decodes])

    def _has_slot(self, state: RequestState) -> bool:
        """A prompt has all its blocks, yet needs a free one if its last one is not full."""
        if state.mid_prefill and not state.known % self.block_size:
            return True
        return super()._has_slot(state)


def _apart(states: list[RequestState]) -> tuple[list[RequestState], list[RequestState]]:
    """(decodes, unfinished prompts), each in their order."""
    decodes = [state for state in states if not state.mid_prefill]
    return decodes, [state for state in states if state.mid_prefill]


def _urgency(state: RequestState) -> tuple[int, int]:
    return state.request.priority, state.request.arrival_ps
