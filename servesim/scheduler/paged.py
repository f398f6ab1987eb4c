"""What vLLM V0 and Sarathi-Serve, which grew out of it, share: paged memory and who loses it.

A request gets the blocks of its whole prompt when it is admitted, and only while a watermark of
blocks stays free; a decode asks for one more. Sources: vLLM 0.6.6.post1 `core/block_manager.py`
and `core/scheduler.py`; microsoft/sarathi-serve 96f9911
`sarathi/core/scheduler/sarathi_scheduler.py`.
"""

from servesim.kv.counted import CountedPool
from servesim.kv.manager import KVManager
from servesim.records import Admission, Request, StepPlan
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.counts import BlockCounts
from servesim.scheduler.paged_batch import Batch
from servesim.scheduler.queued import QueuedEngine
from servesim.scheduler.rejections import beyond_cache, beyond_context
from servesim.scheduler.state import RequestState
from servesim.scheduler.victims import victim_position

WATERMARK = 0.01  # share of the blocks that an admission leaves free, in both engines


class PagedEngine(BlockCounts, QueuedEngine):
    """Counts blocks, admits whole prompts, preempts by recomputation.

    There is no null block in these engines: the blocks of the set-up less that one are theirs, so
    that requests can hold as many tokens as under the other profiles.
    """

    def __init__(self, setup: EngineSetup, max_tokens: int, max_seqs: int, stepwise: bool) -> None:
        super().__init__(setup, stepwise)
        cache = setup.cache
        self._max_tokens, self._max_seqs = max_tokens, max_seqs
        self.block_size = cache.block_size
        pool = CountedPool(cache.num_gpu_blocks)
        self._kv = KVManager(pool, cache.block_size, setup.max_model_len, prefix_caching=False)
        self._watermark_blocks = int(WATERMARK * pool.num_usable)
        self._victim_policy = setup.victim

    def reject_reason(self, request: Request) -> str | None:
        """What the engine's front end refuses, and what a preemption could keep out for ever.

        A victim comes back as a prompt with all that it has generated. Such a prompt has to leave
        the watermark free; V0 drops one that never could (`FINISHED_IGNORED`). It also has to
        leave a block to go on with, or it could be its own victim for ever.
        """
        slots = (self.kv_blocks - max(1, self._watermark_blocks)) * self.block_size
        return beyond_context(request, self._max_model_len) or beyond_cache(request, slots)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        super().add(request, predicted_tokens)
        return not self._settled()

    def _fits(self, state: RequestState) -> bool:
        """Whether all known tokens of a request outside fit, the watermark left free."""
        missing = self._kv.blocks_for(state.known)
        return missing <= self._kv.pool.num_free - self._watermark_blocks

    def _refuses_head(self) -> bool:
        """Whether the head of the queue, if there is one, has no blocks until somebody ends.

        Free blocks only get fewer until then, and what a head needs does not change.
        """
        waiting = self._waiting
        if not waiting.entries:
            return True
        return not waiting.changes_with_time and not self._fits(waiting.head())

    def _admit_prompts(self, batch: Batch, now_s: float) -> list[RequestState]:
        """Prompts from the head of the queue until one does not fit."""
        admitted: list[RequestState] = []
        waiting = self._waiting
        if len(self._running) < self._max_seqs:
            waiting.refresh(now_s)
        while waiting.entries and len(self._running) + len(admitted) < self._max_seqs:
            state = waiting.head()
            num_tokens = self._prompt_tokens(batch, state)
            if not num_tokens or not self._fits(state):
                break
            admitted.append(waiting.pop())
            self._admit(batch, state, num_tokens)
        return admitted

    def _prompt_tokens(self, batch: Batch, state: RequestState) -> int:
        """Tokens of the head of the queue for this step; 0 if it must wait."""
        return min(state.known, batch.budget)

    def _admit(self, batch: Batch, state: RequestState, num_tokens: int) -> None:
        """Let in a request that fits, with blocks for all that it knows."""
        self._kv.admit_new(state.table, state.known, state.known, self._watermark_blocks)
        self._num_admitted += 1
        state.admission_order = self._num_admitted
        batch.admitted.append(Admission(state.request.rid, 0, resumed=state.resumes))
        batch.schedule(state, num_tokens)

    def _continue_running(self, batch: Batch) -> None:
        """Everyone who runs goes on, in order, at the price of victims."""
        running, i = self._running, 0
        while i < len(running):
            state = running[i]
            i = self._make_room(batch, i)
            if i < len(running) and running[i] is state:
                self._continue(batch, state)
                i += 1

    def _continue(self, batch: Batch, state: RequestState) -> None:
        """Tokens for a request that has its slot."""
        if state.mid_prefill:
            self._continue_prompt(batch, state)
        else:
            self._kv.extend(state.table, state.computed + 1, 0, state.known)
            batch.schedule(state, 1)

    def _continue_prompt(self, batch: Batch, state: RequestState) -> None:
        """The next chunk of a prompt, which has its blocks."""
        batch.schedule(state, min(state.known - state.computed, batch.budget))

    def _has_slot(self, state: RequestState) -> bool:
        """Whether a running request may go on.

        A decode needs a free block even where its last one has room: both engines assume that
        every block which is touched has to be allocated.
        """
        return self._kv.pool.num_free >= 1

    def _make_room(self, batch: Batch, i: int) -> int:
        """Preempt until running request `i` has its slot; its new index.

        Where it was its own victim, whoever moved up has that index, or nobody.
        """
        running = self._running
        state = running[i]
        while not self._has_slot(state):
            position = len(running) - 1
            if self._victim_policy is not None:
                position = victim_position(self._victim_policy, running)
            victim = running.pop(position)
            if position < i:
                i -= 1
            self._preempt(batch, victim)
            if victim is state:
                break
        return i

    def _preempt(self, batch: Batch, victim: RequestState) -> None:
        """Take a victim's blocks; it is in no queue yet."""
        batch.take_back(victim)
        batch.preempted.append(victim)
        self._num_preempted += 1
        self._lose(victim)

    def _lose(self, victim: RequestState) -> None:
        self._kv.release(victim.table)
        victim.lose_blocks(self._num_preempted)

    def _planned(self, batch: Batch, order: list[RequestState]) -> StepPlan:
        """The plan, its work in the given order; planned tokens count as computed from here on."""
        recomputed = []
        work = [batch.work[state.request.rid] for state in order]
        for state, (rid, num_tokens, *_) in zip(order, work, strict=True):
            if state.computed < state.high_water:
                recomputed.append((rid, min(num_tokens, state.high_water - state.computed)))
            state.computed += num_tokens
            state.mid_prefill = state.computed < state.known
        preempted = tuple(state.request.rid for state in batch.preempted)
        return StepPlan(tuple(work), tuple(batch.admitted), preempted, tuple(recomputed))

    def _free(self, state: RequestState) -> None:
        self._kv.release(state.table)

    def _phases(self) -> list[int]:
        """Blocks that a step of decodes takes, by step modulo `block_size`."""
        phases = [0] * self.block_size
        for state in self._running:
            phases[-state.computed % self.block_size] += 1
        return phases

    def _steps_that_fit(self, limit: int) -> int:
        """Steps after each of which a block is free, so that nobody lacked one before."""
        room = self._kv.pool.num_free - 1
        if room < 0:
            return 0
        rounds, room = divmod(room, len(self._running))
        steps = rounds * self.block_size
        for taken in self._phases():
            room -= taken
            if room < 0 or steps >= limit:
                break
            steps += 1
        return min(steps, limit)

    def _grow(self, steps: int) -> list[int]:
        """Take the blocks of so many steps."""
        phases, size = self._phases(), self.block_size
        for state in self._running:
            self._kv.extend(state.table, state.computed + steps, 0, state.known + steps)
        return [phases[step % size] for step in range(steps)]
