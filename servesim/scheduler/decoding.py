"""Requests that just go on decoding, kept so that a step costs the same for one or a thousand.

Each of them computes one token per step, so their progress is one shared counter. A request's
computed tokens are `base` + counter. It ends when the counter reaches a number known when it
joins (a heap of those), and it needs a new block whenever its length is a multiple of the block
size, so the requests fall into as many classes as a block has tokens, and one class is due at
each step.
"""

import heapq
from operator import attrgetter

from servesim.kv.counted import CountedPool
from servesim.kv.manager import KVManager
from servesim.records import NO_DECODES, Decodes, Work
from servesim.scheduler.state import RequestState

_by_admission = attrgetter("admission_order")


class DecodeGroup:
    """The decoding requests of one engine, between two steps.

    Attributes:
        size: how many.
        steps: the counter: decode steps taken so far.
        newest: largest order of admission among those who joined since the group was last empty.
        num_sharers: members that still fill blocks which others may hit.
    """

    def __init__(self, kv: KVManager, pool: CountedPool) -> None:
        self._kv, self._pool = kv, pool
        self._caches = kv.prefix_caching
        self._block_size = kv.block_size
        self.size = self.steps = self.num_sharers = 0
        self.newest = -1
        self._members: dict[int, RequestState] = {}
        # members whose length is a multiple of the block size when the counter is at this class
        self._due = [0] * kv.block_size
        self._ends: list[tuple[int, int, RequestState]] = []
        self._context = 0  # computed tokens of all members
        self._longest_base = 0

    def join(self, state: RequestState, end: int) -> None:
        """Take in a request that has one token to compute and ends at `end` known tokens."""
        steps, order = self.steps, state.admission_order
        computed = state.computed
        base = state.base = computed - steps
        heapq.heappush(self._ends, (steps + end - state.known, order, state))
        self._due[-base % self._block_size] += 1
        self._context += computed
        if not self.size or base > self._longest_base:
            self._longest_base = base
        self.size += 1
        self._members[state.request.rid] = state
        if order > self.newest:
            self.newest = order
        if state.table.num_shareable > state.table.num_registered:
            self.num_sharers += 1
        state.grouped = True

    def next_batch(self) -> Decodes:
        """All members' next step, as a cost model sees it."""
        longest = self._longest_base + self.steps + 1
        return Decodes(self.size, self._context + self.size, longest)

    def last_batch(self) -> Decodes:
        """All members' step just taken, as a cost model sees it."""
        if not self.size:
            return NO_DECODES
        return Decodes(self.size, self._context, self._longest_base + self.steps)

    def blocks_due(self) -> int:
        """Blocks that the next step needs."""
        return self._due[self.steps % self._block_size]

    def slots_unused(self) -> int:
        """Slots of their last blocks that they have not reached."""
        steps, size = self.steps, self._block_size
        return sum(count * ((phase - steps) % size) for phase, count in enumerate(self._due))

    def steps_left(self) -> int:
        """Steps until the first member ends; of an empty group, at least one."""
        return self._ends[0][0] - self.steps if self._ends else 1

    def steps_that_fit(self, limit: int) -> int:
        """How many steps, up to `limit`, the free blocks last for."""
        free, block_size = self._pool.num_free, self._block_size
        rounds = free // self.size  # of block_size steps, each of which needs a block per member
        if limit <= (rounds - 1) * block_size:
            return limit
        steps = min(limit, rounds * block_size)
        left = free - rounds * self.size
        while steps < limit:
            left -= self._due[(self.steps + steps) % block_size]
            if left < 0:
                break
            steps += 1
        return steps

    def advance(self, steps: int) -> list[int]:
        """Take `steps` steps; the blocks that each of them took."""
        due, block_size, phase = self._due, self._block_size, self.steps
        taken = [due[counter % block_size] for counter in range(phase, phase + steps)]
        if self.num_sharers:
            self._advance_sharing(taken)
        elif total := sum(taken):
            self._pool.take(total)
        self.steps += steps
        self._context += steps * self.size
        return taken

    def _advance_sharing(self, taken: list[int]) -> None:
        """Step by step, because filled blocks become findable for others."""
        sharers = sorted(filter(_still_shares, self._members.values()), key=_by_admission)
        for step, blocks in enumerate(taken):
            self._pool.take(blocks)
            for state in sharers:
                computed = state.base + self.steps + step + 1
                if computed % self._block_size == 0:
                    self._kv.register(state.table, computed)
        self.num_sharers -= sum(not _still_shares(state) for state in sharers)

    def pop_ended(self) -> list[RequestState]:
        """Members whose last step has been taken, in the engine's order; they are out."""
        ended: list[RequestState] = []
        ends = self._ends
        while ends and ends[0][0] <= self.steps:
            _, _, state = heapq.heappop(ends)
            self._leave(state)
            ended.append(state)
        return ended

    def drop(self, state: RequestState) -> None:
        """Take out a member that is given up before its end."""
        self._ends = [end for end in self._ends if end[2] is not state]
        heapq.heapify(self._ends)
        self._leave(state)

    def dissolve(self) -> list[RequestState]:
        """All members out, in the engine's order."""
        states = sorted(self._members.values(), key=_by_admission)
        for state in states:
            self._write_back(state)
        self._members.clear()
        self._ends.clear()
        self._due = [0] * self._block_size
        self.size = self._context = self.num_sharers = 0
        self.newest = -1
        return states

    def states(self) -> list[RequestState]:
        """Members in the engine's order; their own counters are stale."""
        return sorted(self._members.values(), key=_by_admission)

    def work(self) -> tuple[Work, ...]:
        """What each member did in the step just taken."""
        before = self.steps - 1
        return tuple(Work(s.request.rid, 1, s.base + before, 0, True) for s in self.states())

    def known_tokens(self, state: RequestState) -> int:
        """Prompt and sampled tokens of a member."""
        return state.base + self.steps + 1

    def _leave(self, state: RequestState) -> None:
        self._due[-state.base % self._block_size] -= 1
        del self._members[state.request.rid]
        self._write_back(state)
        self._context -= state.computed
        self.num_sharers -= _still_shares(state)
        self.size -= 1
        if not self.size:
            self.newest = -1
        elif state.base == self._longest_base:
            self._longest_base = max(s.base for s in self._members.values())

    def _write_back(self, state: RequestState) -> None:
        state.computed = state.base + self.steps
        state.known = state.computed + 1
        state.grouped = False
        if _still_shares(state):
            self._kv.register(state.table, state.computed)
        elif self._caches:
            state.table.num_registered = state.computed // self._block_size
        state.table.num_blocks = self._kv.blocks_for(state.computed)


def _still_shares(state: RequestState) -> bool:
    return state.table.num_shareable > state.table.num_registered
