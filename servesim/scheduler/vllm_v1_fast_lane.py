"""The same scheduler on a fast lane, where it goes on alone from one decision to the next."""

from collections.abc import Sequence
from heapq import heappop, heappush
from operator import attrgetter

from servesim.cost.durations import Durations, Progression
from servesim.records import Decodes, Request, StepPlan, Work, new_tuple
from servesim.scheduler.decoding import NO_END
from servesim.scheduler.fast_lane import Journal, Stretch, Surroundings, Track, pack_row
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm_v1_running import Step
from servesim.scheduler.vllm_v1_short import ShortVllmV1Scheduler
from servesim.units import ps_to_seconds

_base = attrgetter("base")
_REST_OF_A_PLAN = StepPlan(())[5:]  # the fields after `decodes`


class FastLaneVllmV1Scheduler(ShortVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does, whether it is asked or drives itself."""

    def has_fast_lane(self) -> bool:
        """Not where the queue changes by itself, nor where look-ups count at every step."""
        return not (self._waiting.changes_with_time or self._passes_over or self._counts_look_ups)

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

    def drive(self, now_ps: int, until_ps: int, most: int, around: Surroundings) -> Stretch:
        """Decide, serve and record from a decision that is due now; see `FastLane`.

        One long function, as the calls and objects of short ones took half of the time. Each part
        says what it stands for, and is what that does for the common case written out; all state
        that other methods look at is up to date whenever one is called. `size`, `taken`,
        `context`, `longest` and `first_end` are copies of the group's.

        Once round the loop is one decision: who arrives while a run or a step is under way, its
        end, who ends and who joins with it, and what comes next. A step that needs the order in
        the group is left to the caller before anything of it has been done.
        """
        arrivals, timer, journal = around
        decode_run, step_time, take = timer.decode_run, timer.step_time, arrivals.take
        live, done, rows, blocks_log = journal.live, journal.done, journal.rows, journal.taken
        group, pool, kv, states = self._group, self._counted, self._kv, self._states
        entries, running = self._waiting.entries, self._running
        due, ends, members = group.due, group.ends, group.members
        max_tokens, max_seqs, max_model_len = self._max_tokens, self._max_seqs, self._max_model_len
        block_size, caching, usable = self._block_size, self._caching, pool.num_usable
        size, taken, context = group.size, group.steps, group.context
        longest, first_end = group.longest_base, group.first_end
        decisions = num_steps = num_skipped = 0
        last_end_ps, streamed = -1, False  # of what was noted
        # under way: a run with its durations, or a step with its plan; KV blocks held by then
        durations: Durations | None = None
        plan: StepPlan | None = None
        steps = used = decoding = budget = duration_ps = 0
        outside: tuple[str, ...] = ()
        work: list[Work] = []
        sampling: list[RequestState] = []
        asleep = False
        now = end = now_ps
        while True:
            # `Replica._receive` and `_cut`
            while arrivals.next_ps <= end:
                at = arrivals.next_ps
                request, predicted_tokens = take()
                if request.prompt_tokens + request.max_tokens > self._surely_fits:
                    reason = self.reject_reason(request)
                    if reason is not None:
                        journal.rejected(request, reason)
                        arrivals.ended((request.rid,), at)
                        continue
                live[request.rid] = Track(request, at)
                if self.add(request, predicted_tokens) and durations is not None:
                    fewer = durations.steps_until(at - now)
                    if fewer < steps:
                        steps = fewer
                        end = now + durations.total(steps)
            now = end
            finished: list[int] = []

            # `advance` and `Recorder.ran`
            if durations is not None:
                if group.num_sharers:
                    blocks_taken = group.advance(steps)
                    taken, context = group.steps, group.context
                else:
                    phase = taken % block_size
                    last = phase + steps
                    if last <= block_size:
                        blocks_taken = due[phase:last]
                    else:
                        blocks_taken = (due * ((last - 1) // block_size + 1))[phase:last]
                    blocks = sum(blocks_taken)
                    pool.num_free -= blocks
                    pool.owed += blocks
                    group.steps = taken = taken + steps
                    group.context = context = context + steps * size
                if type(durations) is Progression:
                    first_ps, increment_ps = durations.first_ps, durations.increment_ps
                    rows += pack_row(steps, first_ps, increment_ps, size, size, size, used)
                    blocks_log.extend(blocks_taken)
                    num_steps += steps
                    num_skipped += steps - 1
                    if durations.outside:
                        journal.outside(durations.outside, steps, durations.total(steps))
                else:
                    journal.ran(durations, size, used, blocks_taken, now)
                decisions += 1
                last_end_ps, streamed = now, True
                durations = None
            # `Recorder.stepped`
            elif plan is not None:
                seqs = decoding + len(work)
                rows += pack_row(1, duration_ps, 0, decoding, seqs, max_tokens - budget, used)
                blocks_log.append(0)
                num_steps += 1
                if outside:
                    journal.outside(outside, 1, duration_ps)
                decisions += 1
                last_end_ps = now
                if decoding or sampling:
                    streamed = True
            elif asleep:
                asleep = False
                decisions += bool(entries)

            # `end_run`, or `update` of the group
            if first_end <= taken:
                self._refused = None
                if group.num_sharers:
                    finished += self._end_decodes(journal, now)
                else:
                    while ends and ends[0][0] <= taken:
                        state = heappop(ends)[2]
                        request, table, base = state.request, state.table, state.base
                        rid, computed = request.rid, base + taken
                        finished.append(rid)
                        del members[rid], states[rid]
                        due[-base % block_size] -= 1
                        group.context -= computed
                        group.size = size = size - 1
                        if not size:
                            group.newest = -1
                        elif base == longest:
                            group.longest_base = longest = max(map(_base, members.values()))
                        blocks = -(-computed // block_size)
                        full = computed // block_size if caching else 0
                        if table.num_shareable:
                            table.num_blocks, table.num_registered = blocks, full
                            kv.release(table)
                        else:
                            pool.take_back_own(full, blocks - full)
                        track = live.pop(rid)
                        track.tokens = computed + 1 - request.prompt_tokens
                        track.last_ps = now
                        track.status = "finished"
                        done.append(track)
                    group.first_end = ends[0][0] if ends else NO_END
                size, context = group.size, group.context
                longest, first_end = group.longest_base, group.first_end

            # `update` of the others, and `join`
            if plan is not None:
                for state in sampling:
                    rid = state.request.rid
                    state.known = known = state.known + 1
                    track = live[rid]
                    if track.last_ps is None:
                        track.first_ps = track.last_ps = now
                        track.tokens = 1
                    else:
                        journal.emitted(rid, 1, now)
                    last = state.stop_at
                    if last > max_model_len:
                        last = max_model_len
                    if known >= last:
                        self._end(state)
                        journal.finished(rid)
                        finished.append(rid)
                        continue
                    table, order, computed = state.table, state.admission_order, state.computed
                    state.base = base = computed - taken
                    state.grouped = True
                    last += taken - known
                    heappush(ends, (last, order, state))
                    if last < first_end:
                        group.first_end = first_end = last
                    due[-base % block_size] += 1
                    group.context = context = context + computed
                    if not size or base > longest:
                        group.longest_base = longest = base
                    group.size = size = size + 1
                    members[rid] = state
                    if order > group.newest:
                        group.newest = order
                    if table.num_shareable > table.num_registered:
                        group.num_sharers += 1
                if len(sampling) == len(running):
                    running.clear()
                elif sampling:
                    running[:] = [s for s in running if s.mid_prefill]
                plan = None
            if finished:
                arrivals.ended(finished, now)
                if arrivals.next_ps <= now:
                    continue  # whom the end of a reply made send at once
            if decisions >= most:
                break

            # `steady_steps`, and `Replica._run`
            if (
                size
                and not running
                and (
                    not entries
                    or size >= max_seqs
                    or (entries[0][-1] is self._refused and not group.num_sharers)
                )
            ):
                steps = first_end - taken
                if steps > (pool.num_free // size - 1) * block_size:
                    steps = group.steps_that_fit()
                    if not steps:
                        break
                batch = new_tuple(Decodes, (size, context + size, longest + taken + 1))
                durations = decode_run(batch, steps)
                steps = durations.steps
                used = usable - pool.num_free
                end = now + durations.total(steps)
                if end >= until_ps:
                    break
                continue
            if not (size or running or entries):
                end = arrivals.next_ps
                asleep = True
                if end >= until_ps:
                    break
                continue

            # `schedule`: the group, requests in mid-prefill
            blocks = due[taken % block_size] if size else 0
            if blocks > pool.num_free:
                break
            budget = max_tokens - size
            threshold = self._threshold() if self._has_threshold else 0
            chunks: Sequence[tuple[RequestState, int]] | None = ()
            if running:
                chunks = self._chunks(Step(budget, threshold), blocks, running, group.newest)
                if chunks is None:
                    break
            decoding = size
            if group.num_sharers:
                group.advance(1)
                taken, context = group.steps, group.context
            elif size:
                pool.num_free -= blocks
                pool.owed += blocks
                group.steps = taken = taken + 1
                group.context = context = context + size
            work, sampling = [], []
            if chunks:
                budget -= self._prefill(chunks, journal, work, sampling)

            # `_schedule_waiting` and `_admit`
            while entries and budget > 0 and size + len(running) < max_seqs:
                state = entries[0][-1]
                table, n = state.table, state.known
                known, cached = n, 0
                if table.num_shareable or table.own_run or state.computed:
                    need, _ = self._need(state, Step(budget, threshold), ran_some=True)
                    n, cached = need.new_tokens, self._cached(need.hits) + need.uncovered_tokens
                    if n > budget or not kv.admit(table, need):
                        break
                else:
                    if 0 < threshold < n:
                        n = threshold
                    if n > budget:
                        if not self._chunked:
                            break
                        n = budget
                    room = pool.num_free
                    if size or running:
                        room -= self._spare_blocks
                    blocks = -(-n // block_size)
                    if blocks > room:
                        break
                    if n < known and self._full_sequence and -(-known // block_size) > room:
                        break
                    pool.num_free -= blocks
                    pool.owed += blocks
                    table.num_blocks = blocks
                    if caching:
                        table.num_registered = n // block_size
                heappop(entries)
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
                budget -= n
            if not work:
                if not size:
                    break
                if entries:
                    self._refused = entries[0][-1]

            # `Replica._step`
            batch = new_tuple(Decodes, (size, context, longest + taken if size else 0))
            plan = new_tuple(StepPlan, (tuple(work), (), (), (), batch, *_REST_OF_A_PLAN))
            time = step_time(plan)
            duration_ps, outside = time
            used = usable - pool.num_free
            end = now + duration_ps
            if end >= until_ps:
                self._in_step = True
                break
        if last_end_ps >= 0:
            journal.drove(num_steps, num_skipped, last_end_ps, streamed)
        return Stretch(now, decisions, None if plan is None else (plan, time))

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

    def _end_decodes(self, journal: Journal, now: int) -> list[int]:
        """End whom the group's last step ended; their numbers."""
        ended = self._group.pop_ended()
        for state in ended:
            self._end(state)
            request = state.request
            journal.decoded(request.rid, state.known - request.prompt_tokens, now)
        return [state.request.rid for state in ended]
