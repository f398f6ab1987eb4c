"""Requests that just go on decoding, kept so that a step costs the same for one or a thousand.

Each of them computes one token per step, so their progress is one shared counter. A request's
computed tokens are `base` + counter. It ends when the counter reaches a number known when it
joins (a heap of those), and it needs a new block whenever its length is a multiple of the block
size, so the requests fall into as many classes as a block has tokens, and one class is due at
each step.

With asynchronous scheduling the last computed token of each member is in flight when a step is
planned: it has been sampled for and is not yet known.
"""

import heapq
from array import array
from collections.abc import Sequence
from operator import attrgetter

from servesim.kv.counted import CountedPool
from servesim.kv.manager import KVManager
from servesim.records import NO_DECODES, Decodes, Work, new_tuple
from servesim.scheduler.state import RequestState

NO_END = 2**62
_by_admission, _base = attrgetter("admission_order"), attrgetter("base")


class DecodeGroup:
    """The decoding requests of one engine, between two steps.

    Attributes:
        size: how many.
        steps: the counter: decode steps taken so far.
        first_end: the counter when the first member ends; NO_END for an empty group.
        newest: largest order of admission among those who joined since the group was last empty.
        num_sharers: members that still fill blocks which others may hit.

    And, for a fast lane that writes `join`, `advance` and `pop_ended` out:
        due: members whose length is a multiple of the block size when the counter is of this
            class, modulo the block size.
        ends: a heap of (counter at the end, order of admission, member).
        members: by request number.
        context: computed tokens of all members.
        longest_base: largest `base` of a member.
    """

    def __init__(self, kv: KVManager, pool: CountedPool, in_flight: int = 0) -> None:
        """Nobody yet; `in_flight` are the tokens per member in flight between two steps."""
        self._kv, self._pool, self._in_flight = kv, pool, in_flight
        self._caches = kv.prefix_caching
        self._block_size = kv.block_size
        self.size = self.steps = self.num_sharers = 0
        self.newest = -1
        self.first_end = NO_END
        self.members: dict[int, RequestState] = {}
        self.due = array("q", bytes(8 * kv.block_size))
        self.ends: list[tuple[int, int, RequestState]] = []
        self.context = 0
        self.longest_base = 0

    def join(self, state: RequestState, end: int) -> None:
        """Take in a request that has one token to compute and ends at `end` known tokens."""
        steps, order = self.steps, state.admission_order
        computed = state.computed
        base = state.base = computed - steps
        last_step = steps + end - state.known
        heapq.heappush(self.ends, (last_step, order, state))
        if last_step < self.first_end:
            self.first_end = last_step
        self.due[-base % self._block_size] += 1
        self.context += computed
        if not self.size or base > self.longest_base:
            self.longest_base = base
        self.size += 1
        self.members[state.request.rid] = state
        if order > self.newest:
            self.newest = order
        if state.table.num_shareable > state.table.num_registered:
            self.num_sharers += 1
        state.grouped = True

    def next_batch(self) -> Decodes:
        """All members' next step, as a cost model sees it."""
        longest = self.longest_base + self.steps + 1
        return new_tuple(Decodes, (self.size, self.context + self.size, longest))

    def last_batch(self) -> Decodes:
        """All members' step just taken, as a cost model sees it."""
        if not self.size:
            return NO_DECODES
        longest = self.longest_base + self.steps
        return new_tuple(Decodes, (self.size, self.context, longest))

    def blocks_due(self) -> int:
        """Blocks that the next step needs."""
        return self.due[self.steps % self._block_size]

    def slots_unused(self) -> int:
        """Slots of their last blocks that they have not reached."""
        steps, size = self.steps, self._block_size
        return sum(count * ((phase - steps) % size) for phase, count in enumerate(self.due))

    def steps_that_fit(self) -> int:
        """For how many steps no member ends and the free blocks last; not for an empty group."""
        limit = self.first_end - self.steps
        free, block_size = self._pool.num_free, self._block_size
        rounds = free // self.size  # of block_size steps, each of which needs a block per member
        if limit <= (rounds - 1) * block_size:
            return limit
        steps = min(limit, rounds * block_size)
        left = free - rounds * self.size
        while steps < limit:
            left -= self.due[(self.steps + steps) % block_size]
            if left < 0:
                break
            steps += 1
        return steps

    def count_step(self) -> None:
        """A step has been taken whose blocks the members have, one by one."""
        self.steps += 1
        self.context += self.size

    def advance(self, steps: int) -> Sequence[int]:
        """Take `steps` steps; the blocks that each of them took."""
        block_size = self._block_size
        phase = self.steps % block_size
        taken = (self.due * ((phase + steps - 1) // block_size + 1))[phase : phase + steps]
        if self.num_sharers:
            self._advance_sharing(taken)
        elif total := sum(taken):
            self._pool.take(total)
        self.steps += steps
        self.context += steps * self.size
        return taken

    def _advance_sharing(self, taken: Sequence[int]) -> None:
        """Step by step, because filled blocks become findable for others."""
        sharers = sorted(filter(_still_shares, self.members.values()), key=_by_admission)
        for step, blocks in enumerate(taken):
            self._pool.take(blocks)
            for state in sharers:
                known = state.base + self.steps + step + 1 - self._in_flight
                if known % self._block_size == 0:
                    self._kv.register(state.table, known)
        self.num_sharers -= sum(not _still_shares(state) for state in sharers)

    def pop_ended(self) -> list[RequestState]:
        """Members whose last step has been taken, in the engine's order; they are out."""
        ended: list[RequestState] = []
        ends, steps = self.ends, self.steps
        while ends and ends[0][0] <= steps:
            state = heapq.heappop(ends)[2]
            self._leave(state)
            ended.append(state)
        self.first_end = ends[0][0] if ends else NO_END
        return ended

    def drop(self, state: RequestState) -> None:
        """Take out a member that is given up before its end."""
        self.ends = [end for end in self.ends if end[2] is not state]
        heapq.heapify(self.ends)
        self.first_end = self.ends[0][0] if self.ends else NO_END
        self._leave(state)

    def dissolve(self) -> list[RequestState]:
        """All members out, in the engine's order."""
        states = sorted(self.members.values(), key=_by_admission)
        for state in states:
            self._write_back(state)
        self.members.clear()
        self.ends.clear()
        self.first_end = NO_END
        self.due = array("q", bytes(8 * self._block_size))
        self.size = self.context = self.num_sharers = 0
        self.newest = -1
        return states

    def states(self) -> list[RequestState]:
        """Members in the engine's order; their own counters are stale."""
        return sorted(self.members.values(), key=_by_admission)

    def work(self) -> tuple[Work, ...]:
        """What each member did in the step just taken."""
        before = self.steps - 1
        return tuple(Work(s.request.rid, 1, s.base + before, 0, True) for s in self.states())

    def known_tokens(self, state: RequestState) -> int:
        """Prompt and sampled tokens of a member."""
        return state.base + self.steps + 1 - self._in_flight

    def _leave(self, state: RequestState) -> None:
        base, members = state.base, self.members
        self.due[-base % self._block_size] -= 1
        del members[state.request.rid]
        self._write_back(state)
        self.context -= state.computed
        if self.num_sharers:
            self.num_sharers -= _still_shares(state)
        self.size -= 1
        if not members:
            self.newest = -1
        elif base == self.longest_base:
            self.longest_base = max(map(_base, members.values()))

    def _write_back(self, state: RequestState) -> None:
        computed, in_flight = state.base + self.steps, self._in_flight
        state.computed = computed
        state.known = computed + 1 - in_flight
        state.placeholders = state.in_flight = in_flight
        state.grouped = False
        table = state.table
        if table.num_shareable > table.num_registered:
            self._kv.register(table, computed - in_flight)
        elif self._caches:
            table.num_registered = (computed - in_flight) // self._block_size
        table.num_blocks = -(-state.computed // self._block_size)


def _still_shares(state: RequestState) -> bool:
    return state.table.num_shareable > state.table.num_registered
