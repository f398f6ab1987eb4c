"""Data-parallel ranks in lock-step: one clock, the slowest rank's time, dummy steps.

The timers here give times that can be added by hand: so much per step, per token of the rank and,
where ranks share experts, per token of the others.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim.cost.base import listed_run
from servesim.cost.durations import Progression
from servesim.cost.lockstep import LockstepTimer
from servesim.policies.routing.least_loaded import LeastLoaded
from servesim.policies.routing.round_robin import RoundRobin
from servesim.records import Decodes, RankedDecodes, StepPlan, StepTime
from servesim.scheduler.lockstep import LockstepScheduler


@dataclass(frozen=True)
class Sharing:
    """10 ms per step, 1 ms per token, `other_ms` per token of another rank."""

    others: int = 0
    other_ms: int = 2

    def beside(self, tokens):
        return Sharing(sum(tokens), self.other_ms)

    def step_time(self, plan):
        return StepTime((10 + plan.num_tokens + self.other_ms * self.others) * MS)

    def decode_run(self, decodes, steps):
        return listed_run(self, decodes, steps)


@dataclass(frozen=True)
class Growing:
    """A step takes as many ps as its tokens of context, and 1 ms."""

    def step_time(self, plan):
        context = plan.decodes.context
        context += sum(work.num_tokens + work.num_computed for work in plan.work)
        return StepTime(MS + context)

    def decode_run(self, decodes, steps):
        return Progression(MS + decodes.context, decodes.seqs, steps)


class Listing(Growing):
    """The same times one by one."""

    def decode_run(self, decodes, steps):
        return listed_run(self, decodes, steps)


def group(ranks=2, routing=None, **settings):
    router = (routing or RoundRobin()).start(ranks)
    return LockstepScheduler([engine(**settings) for _ in range(ranks)], router)


def both(requests, timer, scheduler=None, **options):
    return serve(requests, scheduler or group(), LockstepTimer(timer), **options)


def times_ms(record):
    return [(r.rank, r.first_token_ps / MS, r.last_token_ps / MS) for r in record.requests]


def test_a_step_lasts_as_long_as_the_slowest_rank_s():
    # rank 0 prefills 4 tokens: 14 ms, rank 1 only 2: 12 ms; then 11 ms for a decode on each; then
    # rank 0's last token, while rank 1 runs a dummy of one token: 11 ms
    load = [request(0, prompt=4, output=3), request(1, prompt=2, output=2)]
    record = both(load, LinearTimer(10 * MS, 1 * MS))
    assert times_ms(record) == [(0, 14, 36), (1, 14, 25)]


def test_shared_experts_see_the_tokens_of_all_ranks():
    # rank 0: 10 + 4 + 2·2 = 18, rank 1: 10 + 2 + 2·4 = 20; then 10 + 1 + 2; with the dummy, too
    load = [request(0, prompt=4, output=3), request(1, prompt=2, output=2)]
    assert times_ms(both(load, Sharing())) == [(0, 20, 46), (1, 20, 33)]


def test_a_rank_that_was_idle_joins_at_the_next_step():
    # the first step takes as long as rank 1's dummy, 10 + 1 + 2·4 = 19, the second ends at 32.
    # Request 1 comes in it and is prefilled in the third: 10 + 2 + 2·1 or 10 + 1 + 2·2 = 15
    load = [request(0, prompt=4, output=4), request(1, 20 * MS, prompt=2, output=1)]
    assert times_ms(both(load, Sharing())) == [(0, 19, 60), (1, 47, 47)]


def test_with_two_steps_in_flight_it_joins_a_step_later():
    load = [request(0, prompt=4, output=5), request(1, 20 * MS, prompt=2, output=1)]
    record = both(load, Sharing(), group(async_scheduling=True))
    # steps end at 19, 32, 45 (planned before request 1 came), 60, 73
    assert times_ms(record) == [(0, 19, 73), (1, 60, 60)]


def test_what_is_counted_is_the_sum_over_ranks():
    load = [request(rid, prompt=4, output=3) for rid in range(4)]
    record = both(load, LinearTimer(), keep_steps=True)
    assert record.kv_blocks == 2 * 1000
    assert record.totals.steps == 3
    assert record.totals.max_seqs == 4
    assert record.totals.tokens == 4 * (4 + 2)
    assert record.totals.busy_ps == 30 * MS
    assert [step.num_seqs for step in record.steps] == [4, 4, 4]
    assert [r.rank for r in record.requests] == [0, 1, 0, 1]


def test_each_rank_has_its_own_seats_and_blocks():
    # one seat per rank: requests 2 and 3 wait for those of their own rank
    load = [request(rid, prompt=4, output=output) for rid, output in enumerate((1, 5, 1, 1))]
    record = both(load, LinearTimer(), group(max_seqs=1))
    assert times_ms(record) == [(0, 10, 10), (1, 10, 50), (0, 20, 20), (1, 60, 60)]


def test_who_is_refused_has_no_rank():
    load = [request(0, prompt=4), request(1, prompt=5000), request(2, prompt=4)]
    record = both(load, LinearTimer())
    assert [(r.status, r.rank) for r in record.requests] == [
        ("finished", 0),
        ("rejected", None),
        ("finished", 1),
    ]


def test_the_slowest_rank_of_a_run_may_change():
    # 10 + 3j against 210 + j, and 180 + 3j, which overtakes after step 15: there the run ends
    timer = LockstepTimer(Growing())
    run = timer.decode_run(RankedDecodes.of((Decodes(3, 10, 5), Decodes(1, 210, 210))), 50)
    assert isinstance(run, Progression)
    assert (run.first_ps, run.increment_ps, run.steps) == (MS + 210, 1, 50)
    run = timer.decode_run(RankedDecodes.of((Decodes(3, 180, 60), Decodes(1, 210, 210))), 50)
    assert (run.first_ps, run.increment_ps, run.steps) == (MS + 210, 1, 16)
    mixed = RankedDecodes.of((Decodes(3, 180, 60), Decodes(1, 210, 210)))
    run = LockstepTimer(Listing()).decode_run(mixed, 50)
    assert [run.at(j) - MS for j in (0, 14, 15, 16, 49)] == [210, 224, 225, 228, 327]


@pytest.mark.parametrize("other_ms", [0, 2])
def test_a_run_takes_the_same_time_as_its_steps(other_ms):
    timer = LockstepTimer(Sharing(other_ms=other_ms))
    decodes = RankedDecodes.of((Decodes(3, 10, 5), Decodes(0, 0, 0), Decodes(2, 9, 7)))
    run = timer.decode_run(decodes, 5)
    for step in range(run.steps):
        plan = StepPlan((), decodes=decodes.later(step))
        assert run.at(step) == timer.step_time(plan).duration_ps


loads = st.lists(
    st.tuples(
        st.integers(0, 60 * MS),  # after the one before
        st.integers(1, 40),  # prompt
        st.integers(1, 30),  # reply
        st.integers(0, 3),  # further tokens that the cap would allow
    ),
    min_size=1,
    max_size=14,
)


def made(load):
    requests, now = [], 0
    for rid, (gap, prompt, output, more) in enumerate(load):
        now += gap
        requests.append(request(rid, now, prompt, output, max_tokens=output + more))
    return requests


engines = st.fixed_dictionaries(
    {
        "blocks": st.sampled_from([22, 40, 400]),
        "max_tokens": st.sampled_from([8, 64]),
        "max_seqs": st.sampled_from([1, 3, 8]),
        "async_scheduling": st.booleans(),
        "release": st.sampled_from(["0.15", "0.20", "0.33"]),
    }
)
timers = st.sampled_from([LinearTimer(), LinearTimer(7 * MS, MS), Sharing(), Growing(), Listing()])
routings = st.sampled_from([RoundRobin(), LeastLoaded(), LeastLoaded(1.0, 0.0)])


@settings(max_examples=150, deadline=None)
@given(loads, engines, timers, routings, st.integers(1, 3), st.none() | st.integers(1, 800 * MS))
def test_skipping_gives_the_same_bits_as_stepping(load, settings, timer, routing, ranks, until):
    requests = made(load)
    options = {"keep_steps": True, "until_ps": until}
    skipped = both(requests, timer, group(ranks, routing, **settings), **options)
    stepped = both(requests, timer, group(ranks, routing, stepwise=True, **settings), **options)
    assert skipped == stepped


@settings(max_examples=100, deadline=None)
@given(loads, engines, timers, routings, st.integers(2, 4))
def test_nobody_is_lost(load, settings, timer, routing, ranks):
    requests = made(load)
    scheduler = group(ranks, routing, **settings)
    record = both(requests, timer, scheduler)
    assert [r.rid for r in record.requests] == [r.rid for r in requests]
    for sent, served in zip(requests, record.requests, strict=True):
        assert served.status == "finished"
        assert served.output_tokens == sent.output_tokens
        assert served.rank in range(ranks)
    assert scheduler.num_running == scheduler.num_waiting == scheduler.kv_blocks_used == 0
    sampled = sum(r.output_tokens for r in record.requests)
    assert record.itl_ps.counts.sum() == sampled - len(requests)


@settings(max_examples=100, deadline=None)
@given(loads, engines)
def test_one_rank_is_an_engine_as_any_other(load, settings):
    requests, timer = made(load), LinearTimer(7 * MS, MS)
    alone = serve(requests, engine(**settings), timer, keep_steps=True)
    assert both(requests, timer, group(1, **settings), keep_steps=True) == alone
