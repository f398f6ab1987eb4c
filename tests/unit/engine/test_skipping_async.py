"""Skipping steps under asynchronous scheduling changes no number: bit for bit, on random loads."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve
from test_skipping import EXAMPLES, TIMERS, GrowingTimer, engines, loads, told_apart

from servesim.content import Tokens
from servesim.policies.admission.kv_headroom import KVHeadroom
from servesim.policies.admission.queue_limit import QueueLimit

DOORS = (None, None, None, QueueLimit(2), KVHeadroom(0.3), KVHeadroom(0.7))


def in_both_ways(requests, timer=None, settings_=(), **options):
    """The run stepped through and the run with skips, which must be equal."""
    stepped, skipped = (
        serve(
            requests,
            engine(async_scheduling=True, stepwise=stepwise, **dict(settings_)),
            timer or GrowingTimer(),
            keep_steps=True,
            **options,
        )
        for stepwise in (True, False)
    )
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped.totals == stepped.totals
    assert skipped == stepped
    return skipped


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    loads(),
    engines(),
    st.sampled_from(TIMERS),
    st.sampled_from([None, 60 * MS, 200 * MS]),
    st.sampled_from(DOORS),
)
def test_skipping_equals_stepping_bit_for_bit(requests, settings_, timer, until, door):
    requests = told_apart(requests, settings_)
    in_both_ways(requests, timer, settings_, until_ps=until, admission=door)


def test_a_long_reply_alone_is_one_run_and_the_step_of_its_last_token():
    record = in_both_ways([request(0, 0, 4, 3000)])
    # 0 is the prefill; 1 … 2998 are the run, and 2999, in flight at its end, has none behind it
    assert (record.totals.steps, record.totals.skipped_steps) == (3000, 2997)


def test_a_long_reply_that_ends_by_itself_is_one_run_and_the_step_in_vain():
    record = in_both_ways([request(0, 0, 4, 3000, max_tokens=3500)])
    # 1 … 2999 are the run; 3000 was planned when the last token was not known yet
    assert (record.totals.steps, record.totals.skipped_steps) == (3001, 2998)
    assert sum(record.itl_ps.values()) == 2999


@pytest.mark.parametrize("release", ["0.11", "0.15", "0.20", "0.32", "0.33"])
def test_a_step_in_vain_has_no_gap_and_holds_its_seat(release):
    # two seats: a ends by itself, b goes on, c waits for a seat from the beginning
    load = [request(0, 0, 4, 9, max_tokens=20), request(1, 0, 4, 60), request(2, MS, 4, 5)]
    record = in_both_ways(load, settings_={"release": release, "max_seqs": 2})
    # a's ninth token streams with step 8; 9 was planned before, with a; 10 with c
    ends = [step.start_ps + step.duration_ps for step in record.steps]
    assert record.requests[0].last_token_ps == ends[8]
    assert [step.num_seqs for step in record.steps[7:12]] == [2, 2, 2, 2, 2]
    assert record.requests[2].scheduled_ps == ends[9]
    assert sum(record.itl_ps.values()) == 8 + 59 + 4
    assert record.totals.skipped_steps > 40


@pytest.mark.parametrize("arrival_ms", [51, 55, 60])
def test_an_arrival_in_the_middle_of_a_run_joins_the_step_after_the_next(arrival_ms):
    load = [request(0, 0, 4, 100), request(1, arrival_ms * MS, 4, 2)]
    record = in_both_ways(load, LinearTimer())
    # step 5 is under way and 6 is planned; at 60, when 6 starts, 7 is planned
    assert record.requests[1].scheduled_ps == 70 * MS
    assert record.totals.skipped_steps > 85


def test_under_memory_pressure_there_are_preemptions_in_both():
    requests = [request(i, i * MS, 30, 40) for i in range(12)]
    record = in_both_ways(requests, settings_={"blocks": 40, "max_model_len": 96})
    assert sum(r.preemptions for r in record.requests) > 5
    assert record.totals.skipped_steps > 0


def test_blocks_of_a_reply_are_found_by_who_asks_for_them():
    shared = Tokens(tuple(range(60)))
    load = [
        request(0, 0, 9, 40, content=shared),
        request(1, 120 * MS, 50, 5, content=shared),
        request(2, 900 * MS, 50, 5, content=shared),
    ]
    record = in_both_ways(load)
    assert 12 <= record.requests[1].cached_tokens < 48
    assert record.requests[2].cached_tokens == 48
    assert record.totals.skipped_steps > 20


def test_a_cut_in_a_run_counts_what_has_streamed_by_then():
    load = [request(0, 0, 4, 100), request(1, 0, 4, 30, max_tokens=50), request(2, 0, 4, 12)]
    for until_ms in (*range(5, 90, 2), *range(90, 700, 13)):
        in_both_ways(load, until_ps=until_ms * MS)


@pytest.mark.parametrize("until_ms", [103, 150, None])
def test_a_head_that_is_looked_up_at_every_step_is_counted_up_to_a_cut(until_ms):
    # request 1 needs 18 of 21 blocks; up to 0.20 every plan looks it up while it waits
    load = [request(0, 0, 20, 40), request(1, 5 * MS, 70, 5)]
    settings_ = {"release": "0.20", "blocks": 22, "max_model_len": 96}
    record = in_both_ways(load, settings_=settings_, until_ps=until_ms and until_ms * MS)
    assert record.prefix_stats.queries > 20 + 10 * 70


def test_the_last_block_of_a_reply_that_ends_by_its_cap_is_found():
    # 9 tokens, 8 of which get KV: two blocks, the second filled by the step of the last token
    shared = Tokens(tuple(range(40)))
    load = [request(0, 0, 4, 5, content=shared), request(1, 500 * MS, 20, 2, content=shared)]
    assert in_both_ways(load).requests[1].cached_tokens == 8


@pytest.mark.parametrize("release", ["0.11", "0.33"])
@pytest.mark.parametrize(("prompt", "output"), [(5, 11), (14, 2), (15, 1)])
def test_no_step_is_planned_behind_the_end_of_the_context(release, prompt, output):
    settings_ = {"release": release, "max_model_len": 16}
    record = in_both_ways([request(0, 0, prompt, output)], settings_=settings_)
    assert record.totals.steps == output


def test_who_ends_together_frees_blocks_in_order_of_admission():
    # blocks of 1, 24 to be had. 0 and 1 end with the same step, 1 by itself; later 2 takes the
    # blocks that were given back first, and what is left of the others is found by 3 and 4
    ours, theirs = (Tokens(tuple(range(start, start + 30))) for start in (0, 100))
    for caps in ((4, 9), (9, 4)):
        load = [
            request(0, 0, 6, 4, max_tokens=caps[0], content=ours),
            request(1, 0, 6, 4, max_tokens=caps[1], content=theirs),
            request(2, 200 * MS, 15, 1),
            request(3, 400 * MS, 8, 1, content=ours),
            request(4, 600 * MS, 8, 1, content=theirs),
        ]
        in_both_ways(load, settings_={"blocks": 25, "block_size": 1, "max_model_len": 24})


def test_who_ends_while_memory_runs_out_frees_blocks_in_order_of_admission():
    # blocks of 1, 23 to be had. The plan made at 20 ms does without 0 and 3, whose caps are reached
    # by the step under way; 1 and 2 do not fit and the group is dissolved. At 30 ms 0, 2 (by
    # itself) and 3 end; what 6 and 7 find later depends on whose blocks 4 and 5 have taken
    def told(start):
        return Tokens(tuple(range(start, start + 40)))

    sizes = [(2, 3, 3), (3, 5, 5), (3, 3, 8), (6, 3, 3), (6, 3, 3)]
    load = [
        request(i, 0, prompt, output, max_tokens=cap, content=told(100 * i))
        for i, (prompt, output, cap) in enumerate(sizes)
    ]
    load.append(request(5, 300 * MS, 3, 1))
    load += [
        request(6 + i, (4 + i) * 100 * MS, 8, 1, content=told(c)) for i, c in ((0, 200), (1, 100))
    ]
    settings_ = {"blocks": 24, "block_size": 1, "max_model_len": 17, "max_seqs": 5}
    record = in_both_ways(load, LinearTimer(), settings_)
    assert [r.last_token_ps for r in record.requests[:4]] == [30 * MS, 50 * MS, 30 * MS, 30 * MS]
    assert sum(r.preemptions for r in record.requests) > 0
    assert record.requests[7].cached_tokens > 0
