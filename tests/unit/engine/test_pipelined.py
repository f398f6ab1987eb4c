"""Two steps in flight: who is planned when, when tokens stream, what a reply's end wastes.

First with an engine without a memory limit, whose plans can be made by hand, then with vLLM's.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim.records import (
    Admission,
    Emission,
    PrefixStats,
    StepOutcome,
    StepPlan,
    Work,
)
from servesim.scheduler.steps_only import StepsOnly

STEP = 10 * MS


class _State:
    def __init__(self, request):
        self.request = request
        self.sampled = self.in_flight = 0


class InOrder(StepsOnly):
    """First come, first served, whole prompts, a block per request; no memory limit.

    With depth 2 it plans a request that has a token in flight once more, unless that token is
    the last one that `max_tokens` allows.
    """

    num_speculative_tokens, block_size, kv_blocks, kv_slots_unused = 0, 4, 100, 0
    prefix_stats = PrefixStats(0, 0)
    pipeline_depth = None

    def __init__(self, depth=2, max_seqs=8):
        self.pipeline_depth, self._max_seqs = depth, max_seqs
        self._waiting, self._running = [], {}
        self.planned_at = []

    num_running = property(lambda self: len(self._running))
    num_waiting = property(lambda self: len(self._waiting))
    kv_blocks_used = num_running

    def load(self):
        return self.num_waiting, self.kv_blocks_used

    def reject_reason(self, request):
        return None

    def add(self, request, predicted_tokens):
        self._waiting.append(request)
        return True

    def schedule(self, now_ps):
        work, admitted = [], []
        for rid, state in self._running.items():
            known = state.sampled + state.in_flight
            if known < state.request.max_tokens:
                work.append(Work(rid, 1, state.request.prompt_tokens + known - 1, 0, True))
        while self._waiting and len(self._running) < self._max_seqs:
            new = self._waiting.pop(0)
            self._running[new.rid] = _State(new)
            work.append(Work(new.rid, new.prompt_tokens, 0, 0, True))
            admitted.append(Admission(new.rid, 0, False))
        for entry in work:
            self._running[entry.rid].in_flight += 1
        self.planned_at.append((now_ps, tuple(entry.rid for entry in work)))
        return StepPlan(tuple(work), tuple(admitted))

    def update(self, plan, accepted):
        emitted, finished = [], []
        for rid, *_ in plan.work:
            state = self._running.get(rid)
            if state is None:
                continue  # ended a step ago
            state.in_flight -= 1
            state.sampled += 1
            emitted.append(Emission(rid, 1))
            if state.sampled == min(state.request.output_tokens, state.request.max_tokens):
                finished.append(rid)
                del self._running[rid]
        return StepOutcome(tuple(emitted), tuple(finished))


def starts(record):
    return [step.start_ps // MS for step in record.steps]


def times(record, rid):
    """(scheduled, first token, last token), ms."""
    r = record.requests[rid]
    return tuple(t // MS for t in (r.scheduled_ps, r.first_token_ps, r.last_token_ps))


def test_a_step_is_planned_when_the_one_before_it_starts():
    scheduler = InOrder()
    record = serve([request(0, output=3)], scheduler, keep_steps=True)
    assert starts(record) == [0, 10, 20]
    # twice at 0; at 10 the third; at 20 there is nothing that the last token allows, and at 30
    # nobody is left to ask for
    assert scheduler.planned_at == [(0, (0,)), (0, (0,)), (STEP, (0,)), (2 * STEP, ())]
    assert times(record, 0) == (0, 10, 30)
    assert record.end_ps == 3 * STEP


def test_a_request_that_stops_by_itself_wastes_a_step():
    record = serve([request(0, output=2, max_tokens=9)], InOrder(), keep_steps=True)
    assert starts(record) == [0, 10, 20]  # the third was planned at 10, the end is seen at 20
    assert times(record, 0) == (0, 10, 20)
    assert record.requests[0].output_tokens == 2
    assert record.totals.tokens == 4 + 1 + 1
    assert record.end_ps == 3 * STEP


@pytest.mark.parametrize("arrival_ms", [1, 5, 10])
def test_an_arrival_joins_a_step_later_than_without_a_pipeline(arrival_ms):
    load = [request(0, output=6), request(1, arrival_ms * MS, output=2)]
    # the step that starts at 10 was planned at 0; the next plan is made at 10, for 20
    assert times(serve(load, InOrder()), 1) == (20, 30, 40)
    assert times(serve(load, InOrder(depth=1)), 1) == (10, 20, 30)


def test_two_requests_with_and_without_a_pipeline():
    # a stops by itself after 3 tokens, b by its cap after 2
    load = [request(0, output=3, max_tokens=8), request(1, 15 * MS, output=2)]
    one_by_one = serve(load, InOrder(depth=1), keep_steps=True)
    # 0 a, 10 a, 20 a and b's prompt, 30 b
    assert starts(one_by_one) == [0, 10, 20, 30]
    assert (times(one_by_one, 0), times(one_by_one, 1)) == ((0, 10, 30), (20, 30, 40))
    assert one_by_one.totals.tokens == 4 + 2 + 4 + 1
    ahead = serve(load, InOrder(), keep_steps=True)
    # 0 a, 10 a, 20 a (planned at 10), 30 a in vain and b's prompt (planned at 20), 40 b
    assert starts(ahead) == [0, 10, 20, 30, 40]
    assert (times(ahead, 0), times(ahead, 1)) == ((0, 10, 30), (30, 40, 50))
    assert ahead.totals.tokens == 4 + 2 + 1 + 4 + 1
    assert [step.num_seqs for step in ahead.steps] == [1, 1, 1, 2, 1]


def test_an_arrival_while_nothing_is_planned_waits_for_the_end_of_the_step():
    load = [request(0, output=1), request(1, 3 * MS, output=2)]
    record = serve(load, InOrder(), keep_steps=True)
    assert starts(record) == [0, 10, 20]
    assert times(record, 1) == (10, 20, 30)


@pytest.mark.parametrize(("arrival_ms", "scheduled_ms"), [(20, 30), (25, 30), (30, 30), (31, 31)])
def test_a_wasted_step_runs_to_its_end_though_nobody_is_left(arrival_ms, scheduled_ms):
    load = [request(0, output=2, max_tokens=9), request(1, arrival_ms * MS, output=1)]
    record = serve(load, InOrder(), keep_steps=True)
    assert starts(record) == [0, 10, 20, scheduled_ms]
    assert times(record, 1) == (scheduled_ms, scheduled_ms + 10, scheduled_ms + 10)


def test_simultaneous_arrivals_after_idle_share_the_step_that_starts_at_once():
    scheduler = InOrder()
    load = [request(i, 5 * STEP, output=2) for i in range(3)]
    record = serve(load, scheduler, keep_steps=True)
    assert [(step.start_ps, step.num_seqs) for step in record.steps] == [
        (5 * STEP, 3),
        (6 * STEP, 3),
    ]
    assert scheduler.planned_at[:2] == [(5 * STEP, (0, 1, 2)), (5 * STEP, (0, 1, 2))]


def test_a_row_tells_the_queue_and_the_blocks_when_its_step_starts():
    load = [request(0, output=4), request(1, 5 * MS, output=2)]
    rows = serve(load, InOrder(), keep_steps=True).steps
    # at 10 b waits: it is admitted at that instant, for the step that starts at 20; at 30 b's
    # first token is there and a's last one under way
    shown = [(r.start_ps // MS, r.num_seqs, r.num_waiting, r.kv_blocks_used) for r in rows]
    assert shown == [(0, 1, 0, 1), (10, 1, 1, 1), (20, 2, 0, 2), (30, 2, 0, 2)]


def test_a_cut_run_knows_nothing_of_the_step_that_has_not_started():
    load = [request(0, output=2), request(1, 5 * MS, output=2)]
    record = serve(load, InOrder(), until_ps=20 * MS, keep_steps=True)
    # b was planned at 10 for the step that would have started at 20
    a, b = record.requests
    assert (a.status, a.output_tokens, a.first_token_ps) == ("unfinished", 1, STEP)
    assert (b.status, b.reason, b.scheduled_ps) == ("unfinished", "run ended", None)
    assert starts(record) == [0]
    assert record.end_ps == 20 * MS


class Scripted(InOrder):
    """Plans and outcomes as written down; requests are there until they have finished."""

    def __init__(self, plans, outcomes):
        super().__init__()
        self._plans, self._outcomes, self._left = list(plans), list(outcomes), 0

    num_running = property(lambda self: self._left)

    def add(self, request, predicted_tokens):
        self._left += 1
        return True

    def schedule(self, now_ps):
        return self._plans.pop(0) if self._plans else StepPlan(())

    def update(self, plan, accepted):
        outcome = self._outcomes.pop(0)
        self._left -= len(outcome.finished)
        return outcome


def decode(rid):
    return Work(rid, 1, 4, 0, True)


def tokens(*rids, finished=()):
    return StepOutcome(tuple(Emission(rid, 1) for rid in rids), finished)


def test_a_victim_may_end_by_its_token_in_flight_before_the_step_that_took_its_blocks():
    plans = [
        StepPlan((decode(0), decode(1)), (Admission(0, 0, False), Admission(1, 0, False))),
        StepPlan((decode(0),), preempted=(1,)),
    ]
    outcomes = [tokens(0, 1, finished=(1,)), tokens(0, finished=(0,))]
    record = serve([request(0), request(1)], Scripted(plans, outcomes), keep_steps=True)
    assert [r.preemptions for r in record.requests] == [0, 1]
    assert [step.num_preempted for step in record.steps] == [0, 1]
    assert times(record, 1) == (0, 10, 10)


def test_a_plan_that_only_preempts_is_no_step_and_counts_with_the_one_that_starts_then():
    plans = [
        StepPlan((decode(0), decode(1)), (Admission(0, 0, False), Admission(1, 0, False))),
        StepPlan((), preempted=(0,)),  # at 0, for 10
        StepPlan((), preempted=(1,)),  # at 10, for now: with nothing in flight
        StepPlan((decode(0),), (Admission(0, 0, True),)),  # at 10, for now
        StepPlan((decode(0),)),  # at 10, for 20
    ]
    outcomes = [tokens(0, 1), tokens(0), tokens(0, finished=(0, 1))]
    load = [request(0), request(1)]
    record = serve(load, Scripted(plans, outcomes), keep_steps=True)
    shown = [(step.start_ps // MS, step.num_preempted) for step in record.steps]
    assert shown == [(0, 1), (10, 1), (20, 0)]
    assert [r.preemptions for r in record.requests] == [1, 1]
    assert times(record, 0) == (0, 10, 30)


def test_a_scheduler_that_never_gets_on_is_an_error_and_no_endless_loop():
    with pytest.raises(RuntimeError, match="stuck at 0 ps"):
        serve([request(0)], Scripted([], []))
    with pytest.raises(RuntimeError, match="stuck at 10000000000 ps"):
        serve([request(0)], Scripted([StepPlan((decode(0),))], [StepOutcome((), ())]))


LOADS = st.lists(
    st.tuples(
        st.integers(0, 12).map(lambda half_steps: half_steps * 5 * MS),
        st.integers(1, 30),
        st.integers(1, 9),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=10,
)


def requests_of(load):
    rows = enumerate(sorted(load))
    return [
        request(i, arrival, prompt, output, max_tokens=cap)
        for i, (arrival, prompt, output, cap) in rows
    ]


@settings(max_examples=100, deadline=None)
@given(LOADS, st.integers(1, 4))
def test_everybody_gets_all_tokens_and_only_ends_by_themselves_waste_work(load, max_seqs):
    requests = requests_of(load)
    record = serve(
        requests, InOrder(max_seqs=max_seqs), LinearTimer(STEP, 1_000_001), keep_steps=True
    )
    assert all(r.status == "finished" for r in record.requests)
    for r, sent in zip(record.requests, requests, strict=True):
        assert r.output_tokens == min(sent.output_tokens, sent.max_tokens)
        assert sent.arrival_ps <= r.scheduled_ps < r.first_token_ps <= r.last_token_ps
    needed = sum(r.prompt_tokens + r.output_tokens - 1 for r in record.requests)
    stop_early = sum(r.output_tokens < r.max_tokens for r in requests)
    assert record.totals.tokens == needed + stop_early
    begins = {step.start_ps for step in record.steps}
    assert {r.scheduled_ps for r in record.requests} <= begins
    assert all(step.num_seqs <= max_seqs for step in record.steps)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(1, 20), st.integers(0, 3 * STEP))
def test_a_request_alone_that_ends_by_its_cap_sees_no_pipeline(prompt, output, arrival_ps):
    load = [request(0, arrival_ps, prompt, output)]
    ahead, one_by_one = (serve(load, InOrder(depth), keep_steps=True) for depth in (2, 1))
    assert ahead == one_by_one


def test_the_same_load_gives_the_same_records():
    load = [request(i, i * 3 * MS, 5 + i % 7, 1 + i % 5, max_tokens=4) for i in range(200)]
    first, second = (serve(load, InOrder(max_seqs=3), keep_steps=True) for _ in range(2))
    assert first == second


def vllm(depth=2, **settings):
    return engine(async_scheduling=depth == 2, **settings)


@settings(max_examples=50, deadline=None)
@given(LOADS, st.integers(1, 4), st.sampled_from([1, 2]))
def test_vllm_with_memory_for_all_does_what_the_engine_above_does(load, max_seqs, depth):
    requests, timer = requests_of(load), LinearTimer(STEP, 1_000_001)
    # the budget is beyond all prompts together, so that none is split
    real = serve(requests, vllm(depth, max_seqs=max_seqs, max_tokens=400), timer)
    simple = serve(requests, InOrder(depth, max_seqs), timer)
    assert real.requests == simple.requests
    assert real.itl_ps == simple.itl_ps
    assert real.end_ps == simple.end_ps


def test_memory_of_a_reply_that_ends_by_itself_serves_the_plan_after_the_next():
    # blocks of 4, 4 to be had. a has 8 prompt tokens and ends with its first token, at 10; b
    # needs 3 blocks for its prompt. The plan for 10 is made at 0 and gives a a third block
    load = [request(0, prompt=8, output=1, max_tokens=4), request(1, prompt=12, output=1)]
    settings = {"blocks": 5, "max_model_len": 16}
    ahead = serve(load, vllm(**settings), keep_steps=True)
    shown = [(s.start_ps // MS, s.num_seqs, s.num_waiting, s.kv_blocks_used) for s in ahead.steps]
    assert shown == [(0, 1, 1, 2), (10, 1, 1, 0), (20, 1, 0, 3)]
    assert (times(ahead, 0), times(ahead, 1)) == ((0, 10, 10), (20, 30, 30))
    one_by_one = serve(load, vllm(1, **settings), keep_steps=True)
    assert (times(one_by_one, 0), times(one_by_one, 1)) == ((0, 10, 10), (10, 20, 20))


@pytest.mark.parametrize("release", ["0.33", "0.15", "0.11"])
@settings(max_examples=60, deadline=None)
@given(LOADS, st.integers(10, 16), st.sampled_from([4, 8, 64]))
def test_vllm_with_short_memory_gives_everybody_all_tokens(release, load, blocks, max_tokens):
    requests = requests_of(load)
    scheduler = vllm(
        release=release, blocks=blocks, max_tokens=max_tokens, max_seqs=4, max_model_len=36
    )
    record = serve(requests, scheduler, keep_steps=True)
    rejected = [r.rid for r in record.requests if r.status == "rejected"]
    assert rejected == [r.rid for r in requests if r.prompt_tokens + r.max_tokens > 36]
    for r, sent in zip(record.requests, requests, strict=True):
        if r.rid not in rejected:
            assert r.status == "finished"
            assert r.output_tokens == min(sent.output_tokens, sent.max_tokens)
            assert sent.arrival_ps <= r.scheduled_ps < r.first_token_ps <= r.last_token_ps
    preempted = sum(step.num_preempted for step in record.steps)
    assert preempted == sum(r.preemptions for r in record.requests)
    streamed = sum(r.output_tokens > 0 for r in record.requests) + sum(record.itl_ps.values())
    assert streamed == sum(r.output_tokens for r in record.requests)
    for before, after in zip(record.steps, record.steps[1:], strict=False):
        assert before.start_ps + before.duration_ps <= after.start_ps


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 3 * STEP))
def test_vllm_with_a_request_alone_that_ends_by_its_cap_sees_no_pipeline(prompt, output, arrival):
    # a prompt of up to four steps, chunk by chunk
    load = [request(0, arrival, prompt, output)]
    timer = LinearTimer(STEP, 1_000_001)
    ahead, one_by_one = (serve(load, vllm(depth, max_tokens=16), timer) for depth in (2, 1))
    assert ahead.requests == one_by_one.requests
    assert ahead.itl_ps == one_by_one.itl_ps
    assert ahead.totals.steps == one_by_one.totals.steps
