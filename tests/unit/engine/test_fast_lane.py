"""On its fast lane a scheduler takes nearly all decisions itself, and they are the same ones."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, engine, request, serve
from test_skipping import EXAMPLES, TIMERS, GrowingTimer, check_fast_lane, loads, told_apart

from servesim.content import SharedPrefix
from servesim.policies.admission.queue_limit import QueueLimit
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.scheduler.decoding import DecodeGroup
from servesim.scheduler.fast_lane import fast_lane_of
from servesim.scheduler.vllm.v1_fast_lane import FastLaneVllmV1Scheduler

WAKING_UP = 1  # for the first request, which the replica does


class Counted(FastLaneVllmV1Scheduler):
    """Counts what is decided on the fast lane."""

    decisions = drives = steps_handed_over = 0

    def drive(self, *arguments):
        stretch = super().drive(*arguments)
        self.drives += 1
        self.decisions += stretch.decisions
        self.steps_handed_over += stretch.step is not None
        return stretch


def counted(**settings_):
    scheduler = engine(**settings_)
    assert type(scheduler) is FastLaneVllmV1Scheduler
    scheduler.__class__ = Counted
    return scheduler


def load(count, gap_ps=61 * MS, **more):
    return [request(i, i * gap_ps, 20 + i % 13, 30 + i % 17, **more) for i in range(count)]


def driven_and_asked(requests, timer=None, **settings_):
    """(scheduler that drove, its record), the same as that of one that was asked."""
    scheduler, timer = counted(**settings_), timer or GrowingTimer()
    driven = serve(requests, scheduler, timer)
    check_fast_lane(serve(requests, engine(**settings_), timer, keep_steps=True), driven)
    return scheduler, driven


def test_all_decisions_of_an_ordinary_load_are_taken_there():
    scheduler, record = driven_and_asked(load(200), blocks=2000, max_model_len=200)
    assert scheduler.decisions == record.totals.decisions - WAKING_UP > 400
    assert scheduler.drives == 1


@pytest.mark.parametrize(
    ("requests", "settings_"),
    [
        (load(60, 0), {"max_seqs": 4}),
        (load(60, 20 * MS), {"max_tokens": 24}),
        (load(60, 20 * MS), {"long_prefill_token_threshold": 6}),
        (load(60, content=SharedPrefix(0, 12)), {}),
        (load(60), {"caching": False}),
        (load(60, 20 * MS), {"order": Priority()}),
        (load(60, 20 * MS), {"max_tokens": 200, "enable_chunked_prefill": False}),
    ],
    ids=["queue", "chunks", "threshold", "prefix", "no_cache", "priority", "whole_prompts"],
)
def test_so_are_those_of(requests, settings_):
    # but for those, with the threshold, in which a prefill was admitted before some decode
    scheduler, record = driven_and_asked(requests, max_model_len=200, **settings_)
    assert scheduler.decisions >= 0.98 * record.totals.decisions


@pytest.mark.parametrize("max_tokens", [64, 24])  # with 24, victims are in mid-prefill too
def test_a_step_that_preempts_is_left_to_others_and_leaves_the_group_as_it_is(
    monkeypatch, max_tokens
):
    def dissolve(group):
        pytest.fail("the group was dissolved")

    monkeypatch.setattr(DecodeGroup, "dissolve", dissolve)
    requests = [request(i, i * MS, 30, 40) for i in range(12)]
    scheduler, record = driven_and_asked(
        requests, blocks=40, max_model_len=96, max_tokens=max_tokens
    )
    assert sum(r.preemptions for r in record.requests) > 5
    assert scheduler.drives > 5
    assert 0.5 * record.totals.decisions < scheduler.decisions < record.totals.decisions


def test_what_ends_too_late_is_handed_over():
    requests = [request(0, 0, 20, 50)]
    for until in range(5 * MS, 60 * MS, 3 * MS):
        scheduler = counted()
        driven = serve(requests, scheduler, GrowingTimer(), until_ps=until)
        asked = serve(requests, engine(), GrowingTimer(), until_ps=until, keep_steps=True)
        check_fast_lane(asked, driven)
        assert scheduler.steps_handed_over == (driven.totals.steps == 0)


def test_an_observer_hears_the_same():
    heard, requests = [], load(300)
    for keep_steps in (False, True):
        told = []
        scheduler = counted(blocks=2000, max_model_len=200)
        serve(requests, scheduler, GrowingTimer(), observer=told.append, keep_steps=keep_steps)
        assert scheduler.drives == (0 if keep_steps else len(told) + 1)
        heard.append(told)
    assert heard[0] == heard[1]
    assert len(heard[0]) > 2


def test_nobody_drives_where_a_policy_is_asked_at_the_door():
    scheduler = counted()
    serve(load(10), scheduler, GrowingTimer(), admission=QueueLimit(3))
    assert scheduler.drives == 0


@pytest.mark.parametrize(
    "settings_",
    [
        {"order": ShortestPrompt(patience_s=1.0)},
        {"release": "0.20"},
        {"stepwise": True},
        {"async_scheduling": True},
        {"num_speculative_tokens": 2},
    ],
    ids=["order_changes", "look_ups_count", "stepwise", "asynchronous", "drafts"],
)
def test_there_is_none_where(settings_):
    assert fast_lane_of(engine(**settings_)) is None


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    loads(),
    st.fixed_dictionaries(
        {
            "block_size": st.sampled_from([1, 2, 4]),
            "blocks": st.integers(98, 140),
            "max_tokens": st.sampled_from([9, 16, 40]),
            "max_seqs": st.sampled_from([1, 2, 4, 9]),
            "caching": st.booleans(),
            "order": st.sampled_from([Fcfs(), Fcfs(), Priority(), ShortestPrompt()]),
            "scheduler_reserve_full_isl": st.booleans(),
            "long_prefill_token_threshold": st.sampled_from([0, 0, 6]),
            "watermark": st.sampled_from([0.0, 0.1]),
        }
    ),
    st.sampled_from(TIMERS),
    st.sampled_from([None, None, 60 * MS, 200 * MS]),
)
def test_driving_equals_being_asked_and_stepping_bit_for_bit(requests, made, timer, until):
    made = {**made, "release": "0.33", "max_model_len": 96}
    made["blocks"] = 2 + made["blocks"] // made["block_size"]
    requests = told_apart(requests, made)
    scheduler = counted(**made)
    driven = serve(requests, scheduler, timer, until_ps=until)
    assert scheduler.drives or requests[0].arrival_ps >= (until or 0)
    asked, stepped = (
        serve(requests, engine(stepwise=s, **made), timer, until_ps=until, keep_steps=True)
        for s in (False, True)
    )
    check_fast_lane(asked, driven)
    assert driven == replace(stepped, steps=())
