"""TensorRT-LLM's in-flight batching under GUARANTEED_NO_EVICT; what is assumed: `profile`.

Every step is a token for each request whose prompt is done, then prompts in the order of the queue,
as far as tokens, seats and blocks go. Blocks are reserved to a request's longest end, so decodes
never fail, and between two ends the head of the queue that was refused stays refused.

With the overlap scheduler, a step is planned with the one before it in flight. Then a request has
one token less in `known` than has been planned for it, who gets its last token by the step in
flight, as its cap says, is not planned again, and who has stopped by itself is in it in vain.
"""

from collections import deque
from collections.abc import Mapping

from servesim.records import (
    Admission,
    Emission,
    PrefixStats,
    Request,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.counts import BlockCounts
from servesim.scheduler.queued import QueuedEngine
from servesim.scheduler.state import RequestState
from servesim.scheduler.trtllm.blocks import OwedBlocks
from servesim.scheduler.trtllm.limits import TensorRTLLMLimits
from servesim.units import ps_to_seconds


class TensorRTLLMScheduler(BlockCounts, QueuedEngine):
    """The scheduler of one engine in one run."""

    def __init__(self, setup: EngineSetup, limits: TensorRTLLMLimits, stepwise: bool) -> None:
        super().__init__(setup, stepwise)
        self._limits = limits
        self._blocks = OwedBlocks(limits, setup)
        self._kv = self._blocks.manager
        self.block_size = limits.block_size
        self.pipeline_depth = 2 if limits.overlaps else 1
        self._in_flight: deque[tuple[Work, ...]] = deque()

    @property
    def prefix_stats(self) -> PrefixStats:
        """Prompt tokens looked up and found."""
        return PrefixStats(self._blocks.queries, self._blocks.hits)

    @property
    def num_owed_blocks(self) -> int:
        """Free blocks that are kept for those who run."""
        return self._blocks.num_owed

    def reject_reason(self, request: Request) -> str | None:
        """What the engine answers with an error, and what it could never let in."""
        return self._limits.reject_reason(request)

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if it cannot join before somebody ends."""
        table = self._kv.table(request.rid, request.content)
        state = RequestState(request, table, self._num_added, predicted_tokens)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        return not self._settled()

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the tokens of the older step in, stop what has ended and free its blocks."""
        emitted: list[Emission] = []
        ended: list[RequestState] = []
        for work in self._in_flight.popleft() if plan.num_seqs else ():
            state = self._states.get(work.rid)
            if state is None or not work.samples:
                continue  # it had ended by itself when this step was planned, or is in mid-prefill
            if state.known == state.request.prompt_tokens:
                self._blocks.prompt_done(state)
            state.known += 1
            emitted.append(Emission(work.rid, 1))
            if self._left(state) <= 0:
                ended.append(state)
        self._stop(ended)
        rids = tuple(state.request.rid for state in ended)
        return StepOutcome(tuple(emitted), rids, apart=plan.decodes.seqs)

    def advance(self, steps: int) -> list[int]:
        """Take steady steps; the blocks that each of them took."""
        taken = super().advance(steps)
        if self._limits.overlaps:
            for state in self._running:
                state.computed = state.known
            works = (Work(s.request.rid, 1, s.computed - 1, 0, True) for s in self._running)
            self._in_flight = deque([tuple(works)])
        return taken

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        outcome = super().end_run()
        if outcome.finished and self._limits.overlaps:
            self._in_unison = False  # they are in the step in flight in vain
        return outcome

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step."""
        left = self.decoding()
        self._skipping = False
        plan = self._plan(now_ps)
        if plan.work:
            self._in_flight.append(plan.work)
        return plan._replace(left_group=left) if left else plan

    def _plan(self, now_ps: int) -> StepPlan:
        work, prompts, whole = self._generations()
        budget = self._limits.max_num_tokens - len(work)
        for state in prompts:  # one at most: nobody is let in behind a prompt that was cut
            budget -= self._compute(work, state, self._limits.chunk(_missing(state), budget))
        if any(map(_missing, prompts)):
            admitted: list[Admission] = []
        else:
            admitted = self._admit(work, budget, now_ps)
        self._in_unison = bool(work) and whole and not prompts and not admitted
        return StepPlan(tuple(work), tuple(admitted))

    def _generations(self) -> tuple[list[Work], list[RequestState], bool]:
        """A token for everyone whose prompt is done; unfinished prompts; whether all had theirs.

        The step's tokens may run out before the running list does.
        """
        work: list[Work] = []
        prompts: list[RequestState] = []
        budget = self._limits.max_num_tokens
        for state in self._running:
            computed = state.computed
            if computed < state.request.prompt_tokens:
                prompts.append(state)
            elif computed + 1 < self._longest(state):
                if len(work) == budget:
                    return work, prompts, False
                if not computed % self.block_size:
                    self._blocks.grow(state, computed + 1)
                work.append(Work(state.request.rid, 1, computed, 0, True))
                state.computed = computed + 1
        return work, prompts, True

    def _compute(self, work: list[Work], state: RequestState, tokens: int) -> int:
        """Let so many tokens of a prompt be computed, which has its blocks; as many are returned.

        What was cached is taken off behind the choice of the chunk.
        """
        tokens = min(tokens, _missing(state))
        if tokens:
            samples = tokens == _missing(state)
            work.append(Work(state.request.rid, tokens, state.computed, 0, samples))
            state.computed += tokens
            state.mid_prefill = not samples
        return tokens

    def _admit(self, work: list[Work], budget: int, now_ps: int) -> list[Admission]:
        """Prompts from the head of the queue until one does not fit."""
        waiting, admitted = self._waiting, []
        if len(self._running) < self._limits.max_batch_size:
            waiting.refresh(ps_to_seconds(now_ps))
        while waiting.entries and self._head_fits(budget):
            state = waiting.pop()
            chunk = self._limits.chunk(state.request.prompt_tokens, budget)
            budget -= chunk
            self._num_admitted += 1
            state.admission_order = self._num_admitted
            state.computed = self._blocks.admit(state)
            admitted.append(Admission(state.request.rid, state.computed, False))
            self._running.append(state)
            self._compute(work, state, chunk)
            if state.mid_prefill:
                break
        return admitted

    def _head_fits(self, budget: int) -> bool:
        """Whether the head of the queue finds a seat, tokens and blocks."""
        head, limits = self._waiting.head(), self._limits
        return (
            len(self._running) < limits.max_batch_size
            and limits.chunk(head.request.prompt_tokens, budget) > 0
            and self._blocks.fits(head)
        )

    def _settled(self) -> bool:
        """Whether decodes keep the queue out until a running request ends.

        They take blocks that are owed to them, so neither these nor seats nor tokens change.
        """
        running = len(self._running)
        if not running or not self._in_unison:
            return False
        if running >= self._limits.max_batch_size:
            return True
        if self._waiting.changes_with_time:
            return False
        return not self._head_fits(self._limits.max_num_tokens - running)

    def _steps_that_fit(self, limit: int) -> int:
        """All, but for a last token that is not planned for behind the step in flight."""
        if not self._limits.overlaps:
            return limit
        return max(0, min(self._left(s) - self._reaches_cap(s) for s in self._running))

    def _grow(self, steps: int) -> list[int]:
        taken = self._blocks.by_step(self._running, steps)
        for state in self._running:
            self._blocks.grow(state, state.computed + steps)
        return taken

    def _free(self, state: RequestState) -> None:
        self._blocks.release(state)

    def _stop(self, ended: list[RequestState]) -> None:
        if self._limits.overlaps and not all(map(self._reaches_cap, ended)):
            self._in_unison = False  # somebody is in the step in flight in vain
        self._end(ended)

    def _longest(self, state: RequestState) -> int:
        """Tokens of prompt and reply at which it is known beforehand that a request ends."""
        request = state.request
        return min(request.prompt_tokens + request.max_tokens, self._max_model_len)

    def _reaches_cap(self, state: RequestState) -> bool:
        """Whether a request does not stop by itself."""
        return state.stop_at >= self._longest(state)


def _missing(state: RequestState) -> int:
    """Tokens of the prompt that are still to be computed."""
    return state.request.prompt_tokens - state.computed
