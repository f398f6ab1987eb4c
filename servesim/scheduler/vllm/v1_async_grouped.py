"""Asynchronous scheduling at the price of its decisions, not of its batch.

Between two steps, where N is in flight and N+1 is to be planned, every member of the `DecodeGroup`
is in N, and all its known tokens have been computed but for the one that N computes. A request
joins when it is planned for the first time behind a step that samples for it. Who is in N and has
left the group since is kept apart, until N is taken in:

* who gets its last token by N, as its length cap says, is not in N+1 and keeps its blocks;
* who has stopped by itself in N−1 is in N in vain;
* all of them, where the order inside the group matters: N+1 is then left to
  `AsyncVllmV1Scheduler`, with the counters of each request as it has them.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from servesim.records import Decodes, Emission, StepOutcome, StepPlan, Work
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.decoding import DecodeGroup
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_async import AsyncVllmV1Scheduler
from servesim.scheduler.vllm.v1_grouped import NOTHING, GroupedVllmV1Scheduler
from servesim.scheduler.vllm.v1_running import Step

if TYPE_CHECKING:
    from servesim.scheduler.vllm.v1 import VllmV1

_by_admission = attrgetter("admission_order")


class GroupedAsyncVllmV1Scheduler(GroupedVllmV1Scheduler, AsyncVllmV1Scheduler):
    """Decides as `AsyncVllmV1Scheduler` does, request by request and block by block."""

    def __init__(
        self, settings: "VllmV1", setup: EngineSetup, max_tokens: int, max_seqs: int
    ) -> None:
        super().__init__(settings, setup, max_tokens, max_seqs)
        self._group = DecodeGroup(self._kv, self._counted, in_flight=1)
        self._planned = 0  # members, in the last plan
        # of the step in flight: members that have ended, those who get their last token, and all
        # of them once the group is dissolved
        self._in_vain = 0
        self._last_tokens: list[RequestState] = []
        self._dissolved: list[Work] | None = None
        self._joined: frozenset[int] = frozenset()  # with the last plan

    def decoding(self) -> tuple[tuple[int, int], ...]:
        """(rid, tokens streamed so far) of the group, who gets its last token included."""
        members = [entry for entry in super().decoding() if entry[0] not in self._joined]
        return (*members, *_streamed(self._last_tokens))

    def steady_steps(self) -> int:
        """How many steps from the one in flight on only continue the group, if nobody arrives."""
        if self._group.size != self._planned:
            return 0  # some are in the step in flight in vain
        if self._counts_look_ups and self._waiting.entries:
            return 0  # the plan made in the middle of a run that is cut short would not count
        return super().steady_steps()

    def next_decodes(self) -> Decodes:
        """The batch in flight."""
        return self._group.last_batch()

    def end_run(self) -> StepOutcome:
        """Stop what has ended with the steady steps taken."""
        if self._group.first_end > self._group.steps:
            return NOTHING
        ended = self._pop_ended()
        for state in ended:
            self._end(state)
        return StepOutcome((), tuple(s.request.rid for s in ended), _streamed(ended))

    def schedule(self, now_ps: int) -> StepPlan:
        """Decide one step, with one in flight or none."""
        self._dissolved, self._joined = None, frozenset()
        plan = super().schedule(now_ps)
        self._planned = plan.decodes.seqs
        return plan

    def update(self, plan: StepPlan, accepted: Mapping[int, int]) -> StepOutcome:
        """Take the tokens of the older step in, stop what has ended."""
        self._in_step = False
        self._joined = frozenset()
        in_vain, self._in_vain = self._in_vain, 0
        if self._dissolved is not None:
            return self._update_apart(plan, self._dissolved)
        last_tokens, self._last_tokens = self._last_tokens, []
        emitted: list[Emission] = []
        capped: list[RequestState] = []
        for work in plan.work:
            state = self._states.get(work.rid)
            if state is None:
                continue  # given up, or ended by an earlier step
            if not state.grouped:
                self._landed(state, work)
                if work.samples:
                    capped.append(state)
            if work.samples:
                emitted.append(Emission(work.rid, 1))
        capped += [s for s in last_tokens if s.request.rid in self._states]
        for state in capped:
            state.known += 1
        stopped = self._pop_ended() if self._group.first_end <= self._group.steps else []
        ended = sorted([*capped, *stopped], key=_by_admission)
        for state in ended:
            self._register(state, state.known - 1)
            self._end(state)
        if capped:
            self._drop_ended()
        rids = tuple([state.request.rid for state in ended])
        return StepOutcome(tuple(emitted), rids, _streamed(ended), in_vain)

    def _continue_running(self) -> Step | None:
        """Plan the group and the requests in mid-prefill; None where order in the group counts."""
        group, block_size = self._group, self.block_size
        joining, prefills = self._sort_out() if self._running else ((), [])
        step = Step(self._max_tokens - group.size - len(joining), self._threshold())
        due = group.blocks_due() if group.size else 0
        due += sum(state.computed % block_size == 0 for state in joining)
        if due > self._kv.pool.num_free:
            return None
        newest = max([group.newest, *map(_by_admission, joining)])
        chunks = self._chunks(step, due, prefills, newest) if prefills else ()
        if chunks is None:
            return None
        if joining:
            self._join(joining)
        if group.size:
            group.advance(1)
        for state, n in chunks:
            self._continue_prefill(step, state, n)
        return step

    def _sort_out(self) -> tuple[Sequence[RequestState], list[RequestState]]:
        """Who outside the group joins it now, and for whom the step in flight does not sample.

        Who gets its last token by that step does nothing.
        """
        joining, prefills = [], []
        longest = self._max_model_len - 1
        for state in self._running:
            if not state.placeholders:
                prefills.append(state)
            elif state.computed < longest and not self._is_certain_to_end(state):
                joining.append(state)
        return joining, prefills

    def _join(self, joining: Sequence[RequestState]) -> None:
        for state in joining:
            end = min(state.stop_at, self._max_model_len)
            # who stops by itself is planned once more than who reaches its cap
            self._group.join(state, end - 1 if self._reaches_cap(state, end) else end)
        self._joined = frozenset([state.request.rid for state in joining])
        self._running = [state for state in self._running if not state.grouped]

    def _reaches_cap(self, state: RequestState, end: int) -> bool:
        """Whether it is known beforehand that a request ends at `end` tokens."""
        request = state.request
        capped = end >= request.prompt_tokens + request.max_tokens
        return end >= self._max_model_len or (capped and self._switches.async_length_guard)

    def _pop_ended(self) -> list[RequestState]:
        """Members out that have ended, and are in the step in flight in vain; they are returned.

        So are those out whose last token is in flight; they stay among the running.
        """
        ended = []
        for state in self._group.pop_ended():
            if state.known >= min(state.stop_at, self._max_model_len):
                ended.append(state)
            else:
                self._last_tokens.append(state)
                self._running.append(state)
        self._in_vain += len(ended)
        return ended

    def _schedule_apart(self, now_ps: int) -> StepPlan:
        """Leave the step to the scheduler that looks at every request."""
        last_tokens = [Work(s.request.rid, 1, s.computed - 1, 0, True) for s in self._last_tokens]
        self._dissolved = [*self._group.work(), *last_tokens]
        plan = super()._schedule_apart(now_ps)
        left = plan.left_group + _streamed(self._last_tokens)
        self._last_tokens = []
        return plan._replace(left_group=left)

    def _update_apart(self, plan: StepPlan, decodes: list[Work]) -> StepOutcome:
        """`update` for a plan whose group was dissolved behind it."""
        self._dissolved = None
        states = self._states
        works = [work for work in (*decodes, *plan.work) if work.rid in states]
        works.sort(key=lambda work: states[work.rid].admission_order)
        outcome = AsyncVllmV1Scheduler.update(self, StepPlan(tuple(works)), {})
        return outcome._replace(apart=plan.decodes.seqs)


def _streamed(states: Sequence[RequestState]) -> tuple[tuple[int, int], ...]:
    """(rid, known tokens of the reply)."""
    return tuple([(s.request.rid, s.known - s.request.prompt_tokens) for s in states])
