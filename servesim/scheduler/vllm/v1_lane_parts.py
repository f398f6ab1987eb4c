"""Parts of the fast lane that are called once or less per request, so that a call costs little."""

from collections.abc import Sequence
from heapq import heappop
from operator import attrgetter

from servesim.records import Request, Work, new_tuple
from servesim.scheduler.decoding import NO_END
from servesim.scheduler.fast_lane import Journal
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_running import Step
from servesim.scheduler.vllm.v1_short import ShortVllmV1Scheduler
from servesim.units import ps_to_seconds

_base = attrgetter("base")


class LanePartsVllmV1Scheduler(ShortVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does, and notes it at once."""

    def add(self, request: Request, predicted_tokens: float = 0.0) -> bool:
        """Put a request into the waiting queue; False if a run of steady steps may go on."""
        waiting = self._waiting
        before = waiting.entries[0][-1] if waiting.entries else None
        rid = request.rid
        self._states[rid] = state = RequestState(
            request, self._kv.table(rid, request.content), self._num_added, predicted_tokens
        )
        self._num_added += 1
        waiting.push(state, ps_to_seconds(request.arrival_ps))
        if before is not None and waiting.head() is before and not waiting.changes_with_time:
            return False  # behind a head that has been refused, or that the next plan looks at
        self._refused = None
        return self._group.size + len(self._running) < self._max_seqs

    def _prefill(
        self,
        chunks: Sequence[tuple[RequestState, int]],
        journal: Journal,
        work: list[Work],
        sampling: list[RequestState],
    ) -> int:
        """Go on with prompts by so many tokens each; their sum. Adds to both lists."""
        tokens = 0
        for state, n in chunks:
            rid, known, before = state.request.rid, state.known, state.computed
            self._kv.extend(state.table, before + n, 0, known)
            if before < state.high_water:
                journal.recomputed(rid, min(n, state.high_water - before))
            state.computed = before + n
            samples = state.computed >= known
            state.mid_prefill = not samples
            if samples:
                sampling.append(state)
            work.append(new_tuple(Work, (rid, n, before, 0, samples)))
            tokens += n
        return tokens

    def _let_in(
        self,
        budget: int,
        threshold: int,
        journal: Journal,
        now: int,
        work: list[Work],
        sampling: list[RequestState],
    ) -> int:
        """`_schedule_waiting` and `_admit` in one; the tokens of whom it lets in.

        Adds to both lists.
        """
        pool, kv, running, live = self._counted, self._kv, self._running, journal.live
        entries, block_size, caching = self._waiting.entries, self._block_size, self._caching
        seats = self._max_seqs - self._group.size - len(running)
        left = budget
        while entries and left > 0 and seats > 0:
            state = entries[0][-1]
            table, n = state.table, state.known
            known, cached = n, 0
            if table.num_shareable or table.own_run or state.computed:
                need, _ = self._need(state, Step(left, threshold), ran_some=True)
                n, cached = need.new_tokens, self._cached(need.hits) + need.uncovered_tokens
                if n > left or not kv.admit(table, need):
                    break
            else:
                if 0 < threshold < n:
                    n = threshold
                if n > left:
                    if not self._chunked:
                        break
                    n = left
                room = pool.num_free
                if self._group.size or running:
                    room -= self._spare_blocks
                blocks = -(-n // block_size)
                if blocks > room:
                    break
                if n < known and self._full_sequence and -(-known // block_size) > room:
                    break
                pool.take(blocks)
                table.num_blocks = blocks
                if caching:
                    table.num_registered = n // block_size
            heappop(entries)
            seats -= 1
            left -= n
            rid = state.request.rid
            if state.resumes:
                self._count_query(state, cached)
            else:
                track = live[rid]
                track.scheduled_ps = now
                track.cached = cached
                if caching:
                    self._queries += known
                    self._hits += cached
            if cached < state.high_water:
                journal.recomputed(rid, min(n, state.high_water - cached))
            self._num_admitted += 1
            state.admission_order = self._num_admitted
            state.running = True
            running.append(state)
            state.computed = cached + n
            samples = state.computed >= known
            state.mid_prefill = not samples
            if samples:
                sampling.append(state)
            work.append(new_tuple(Work, (rid, n, cached, 0, samples)))
        return budget - left

    def _end_decodes(self, journal: Journal, now: int) -> list[int]:
        """`_stop_ended` and what it calls in one; who has ended with the group's last step."""
        group, finished = self._group, list[int]()
        self._refused = None
        if group.num_sharers:
            for state in group.pop_ended():
                self._end(state)
                request = state.request
                journal.decoded(request.rid, state.known - request.prompt_tokens, now)
                finished.append(request.rid)
            return finished
        ends, members, due, taken = group.ends, group.members, group.due, group.steps
        states, live, done = self._states, journal.live, journal.done
        block_size, caching = self._block_size, self._caching
        while ends and ends[0][0] <= taken:
            state = heappop(ends)[2]
            request, table, base = state.request, state.table, state.base
            rid, computed = request.rid, base + taken
            finished.append(rid)
            del members[rid], states[rid]
            due[-base % block_size] -= 1
            group.context -= computed
            group.size -= 1
            if not members:
                group.newest = -1
            elif base == group.longest_base:
                group.longest_base = max(map(_base, members.values()))
            blocks = -(-computed // block_size)
            full = computed // block_size if caching else 0
            if table.num_shareable:
                table.num_blocks, table.num_registered = blocks, full
                self._kv.release(table)
            else:
                self._counted.take_back_own(full, blocks - full)
            track = live.pop(rid)
            track.tokens = computed + 1 - request.prompt_tokens
            track.last_ps = now
            track.status = "finished"
            done.append(track)
        group.first_end = ends[0][0] if ends else NO_END
        return finished
