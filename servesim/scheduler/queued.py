"""What the schedulers of whole batches have in common: a queue, a running list, decode runs.

An engine in which a step is either prefill or a token for everyone needs no group to be fast:
what all running requests do in unison for some steps is done for them in one go.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from servesim.content import Unique
from servesim.kv.table import BlockTable
from servesim.records import Decodes, Emission, PrefixStats, Request, StepOutcome, StepPlan, Work
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.counts import QueueCounts
from servesim.scheduler.state import RequestState
from servesim.scheduler.waiting import WaitingQueue
from servesim.units import ps_to_seconds

NOTHING = StepOutcome((), ())


class QueuedEngine(QueueCounts, ABC):
    """The part of a `Scheduler` that such profiles share.

    A profile adds:

    `_plan(now_ps)`: decide one step;
    `_free(state)`: give back the memory of a request that has ended;
    `kv_blocks`, `kv_blocks_used`, `block_size`, `kv_slots_unused`;
    and, to be skipped over, `_settled()`, `_steps_that_fit(limit)` and `_grow(steps)`.

    Prefixes are not shared: content is not looked at.
    """

    num_speculative_tokens = 0
    pipeline_depth = 1
    block_size = 1

    def __init__(self, setup: EngineSetup, stepwise: bool = False) -> None:
        """Empty queues; with `stepwise`, no step is steady."""
        self._stepwise = stepwise
        self._max_model_len = setup.max_model_len
        self._waiting = WaitingQueue(setup.order)
        self._running: list[RequestState] = []
        self._states: dict[int, RequestState] = {}
        self._num_added = self._num_admitted = self._num_preempted = 0
        self._in_unison = False  # everyone running had a token in the last step
        self._skipping = False  # nobody's tokens have been told since `left_group`

    @property
    @abstractmethod
    def kv_blocks(self) -> int:
        """Blocks that requests can hold."""

    @property
    @abstractmethod
    def kv_blocks_used(self) -> int:
        """Blocks held by requests."""

    @property
    def prefix_stats(self) -> PrefixStats:
        """Nothing is looked up."""
        return PrefixStats(0, 0)

    def load(self) -> tuple[int, int]:
        """(requests waiting, KV blocks held)."""
        return self.num_waiting, self.kv_blocks_used

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; True, as the next plan may change with it."""
        table = BlockTable(request.rid, Unique(), self.block_size)
        state = RequestState(request, table, self._num_added, predicted_tokens)
        self._num_added += 1
        self._states[request.rid] = state
        self._waiting.push(state, ps_to_seconds(request.arrival_ps))
        return True

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step."""
        left = self.decoding()
        self._skipping = False
        plan = self._plan(now_ps)
        sampling = sum(work.samples for work in plan.work)
        self._in_unison = sampling == len(self._running)
        return plan._replace(left_group=left) if left else plan

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the step's tokens in, stop what has ended and free its memory at once."""
        emitted = []
        for work in plan.work:
            if work.samples:
                self._states[work.rid].known += 1
                emitted.append(Emission(work.rid, 1))
        ended = [self._states[e.rid] for e in emitted if self._left(self._states[e.rid]) <= 0]
        self._end(ended)
        return StepOutcome(tuple(emitted), tuple(s.request.rid for s in ended))

    def steady_steps(self) -> int:
        """How many steps from now on only give everyone who runs a token."""
        running = self._running
        if self._stepwise or not running or not self._in_unison:
            return 0
        if self.num_waiting and not self._settled():
            return 0
        return self._steps_that_fit(min(map(self._left, running)))

    def next_decodes(self) -> Decodes:
        """The batch of the first steady step."""
        contexts = [state.known for state in self._running]
        return Decodes(len(contexts), sum(contexts), max(contexts))

    def advance(self, steps: int) -> list[int]:
        """Take steady steps; the blocks that each of them took."""
        taken = self._grow(steps)
        for state in self._running:
            state.known += steps
            state.computed = state.known - 1
        self._skipping = True
        return taken

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        ended = [state for state in self._running if self._left(state) <= 0]
        if not ended:
            return NOTHING
        decoded = tuple((s.request.rid, s.known - s.request.prompt_tokens) for s in ended)
        self._end(ended)
        return StepOutcome((), tuple(rid for rid, _ in decoded), decoded)

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the requests that steady steps continue."""
        if not self._skipping:
            return ()
        return tuple((s.request.rid, s.known - s.request.prompt_tokens) for s in self._running)

    def full_work(self, plan: StepPlan) -> tuple[Work, ...]:
        """The work of the plan just made, request by request; ask before `update`."""
        return plan.work

    @abstractmethod
    def _plan(self, now_ps: int) -> StepPlan:
        """Decide one step."""

    @abstractmethod
    def _free(self, state: RequestState) -> None:
        """Give back the memory of a request that has ended."""

    def _settled(self) -> bool:
        """Whether the queue, which is not empty, lets nobody in until a running request ends."""
        return False

    def _steps_that_fit(self, limit: int) -> int:
        """How many steps, up to `limit`, need no memory that is not there; 0 where unknown."""
        return 0

    def _grow(self, steps: int) -> list[int]:
        """Take the memory of so many steps; blocks by step. Counters are as before them."""
        return [0] * steps

    def _left(self, state: RequestState) -> int:
        """Tokens until the request ends."""
        return min(state.stop_at, self._max_model_len) - state.known

    def _end(self, ended: list[RequestState]) -> None:
        for state in ended:
            self._free(state)
            del self._states[state.request.rid]
        if ended:
            self._running = [s for s in self._running if s.request.rid in self._states]
