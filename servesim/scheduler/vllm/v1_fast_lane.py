"""The same scheduler on a fast lane, where it goes on alone from one decision to the next."""

from collections.abc import Sequence
from heapq import heappush

from servesim.cost.durations import Durations, Progression
from servesim.records import Decodes, StepPlan, Work, new_tuple
from servesim.scheduler.fast_lane import Stretch, Surroundings, Track, pack_row
from servesim.scheduler.state import RequestState
from servesim.scheduler.vllm.v1_lane_parts import LanePartsVllmV1Scheduler
from servesim.scheduler.vllm.v1_running import Step

_REST_OF_A_PLAN = StepPlan(())[5:]  # the fields after `decodes`


class FastLaneVllmV1Scheduler(LanePartsVllmV1Scheduler):
    """Decides as `GroupedVllmV1Scheduler` does, whether it is asked or drives itself."""

    def has_fast_lane(self) -> bool:
        """Not where the queue changes by itself, nor where look-ups count at every step."""
        return not (self._waiting.changes_with_time or self._passes_over or self._counts_look_ups)

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
        live, rows, blocks_log = journal.live, journal.rows, journal.taken
        group, pool = self._group, self._counted
        entries, running = self._waiting.entries, self._running
        due, ends, members = group.due, group.ends, group.members
        max_tokens, max_seqs, max_model_len = self._max_tokens, self._max_seqs, self._max_model_len
        block_size, usable = self._block_size, pool.num_usable
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
                finished += self._end_decodes(journal, now)
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

            # `schedule`: the group, requests in mid-prefill, those that wait
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

            if entries and budget > 0 and size + len(running) < max_seqs:
                budget -= self._let_in(budget, threshold, journal, now, work, sampling)
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
