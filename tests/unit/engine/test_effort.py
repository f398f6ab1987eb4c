"""What a run costs, in counts: calls and decisions per request do not grow with the trace."""

import sys

import pytest
from serving import MS, engine, request, serve
from test_skipping import GrowingTimer


def effort(count):
    """(function calls, decisions) per request of `count` requests at one load."""
    requests = [request(i, i * 61 * MS, 20 + i % 13, 30 + i % 17) for i in range(count)]
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    scheduler, timer = engine(blocks=2000, max_model_len=200), GrowingTimer()
    sys.setprofile(note)
    try:
        record = serve(requests, scheduler, timer)
    finally:
        sys.setprofile(None)
    return calls / count, record.totals.decisions / count


def test_calls_and_decisions_per_request_do_not_grow_with_the_trace():
    short, long = effort(200), effort(2000)
    assert long[0] == pytest.approx(short[0], rel=0.05)
    assert long[1] == pytest.approx(short[1], rel=0.05)


def test_a_longer_reply_costs_no_more_decisions():
    def decisions(output):
        requests = [request(i, i * 10_000 * MS, 20, output) for i in range(20)]
        scheduler = engine(blocks=2000, max_model_len=2000)
        return serve(requests, scheduler, GrowingTimer()).totals.decisions

    assert decisions(1000) == decisions(100)


def test_a_run_costs_the_same_for_a_large_batch_as_for_a_small_one():
    def decisions(batch):
        requests = [request(i, 0, 8, 500) for i in range(batch)]
        scheduler = engine(
            blocks=50_000, max_model_len=2000, max_seqs=200, max_tokens=4000, caching=False
        )
        return serve(requests, scheduler, GrowingTimer()).totals.decisions

    assert decisions(200) == decisions(2)
