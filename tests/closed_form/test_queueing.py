"""Runs whose answers are known: by hand, from queueing theory, from Little's law."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim import seeds
from servesim.metrics.batch import Batch


def poisson(rate_per_step: float, count: int, step_ps: int, seed: int = 1):
    gaps = seeds.stream(seed, "test").exponential(step_ps / rate_per_step, count)
    arrival, requests = 0, []
    for rid, gap in enumerate(gaps):
        arrival += round(gap)
        requests.append(request(rid, arrival, prompt=1, output=1))
    return requests


def test_one_request_takes_its_chunks_and_then_a_step_per_further_token():
    # 10 prompt tokens at 4 a step: 4, 4, 2 and the first token; then two decode steps
    record = serve([request(0, prompt=10, output=3)], engine(max_tokens=4, max_seqs=4))
    (done,) = record.requests
    assert done.first_token_ps == 3 * 10 * MS
    assert done.last_token_ps == 5 * 10 * MS
    assert record.itl_ps == {10 * MS: 2}
    assert record.totals.steps == 5
    assert record.totals.tokens == 10 + 2


def test_a_step_costs_what_its_batch_holds():
    timer = LinearTimer(per_step=10 * MS, per_token=MS)
    record = serve([request(0, prompt=5, output=2), request(1, prompt=7, output=2)], timer=timer)
    first = 10 * MS + 12 * MS
    assert [r.first_token_ps for r in record.requests] == [first, first]
    assert [r.last_token_ps for r in record.requests] == [first + 12 * MS] * 2


def test_deterministic_arrivals_slower_than_service_never_wait():
    requests = [request(i, i * 25 * MS, prompt=1, output=2) for i in range(50)]
    record = serve(requests, engine(max_tokens=1, max_seqs=1))
    assert {r.scheduled_ps - r.arrival_ps for r in record.requests} == {0}
    assert {r.last_token_ps - r.arrival_ps for r in record.requests} == {20 * MS}


def test_deterministic_arrivals_faster_than_service_wait_longer_each_time():
    requests = [request(i, i * 5 * MS, prompt=1, output=1) for i in range(50)]
    record = serve(requests, engine(max_tokens=1, max_seqs=1))
    assert [r.scheduled_ps - r.arrival_ps for r in record.requests] == [
        i * 5 * MS for i in range(50)
    ]


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_one_server_with_poisson_arrivals_waits_as_m_d_1_does(rho):
    # a request is one step long and steps run back to back: M/D/1, Wq = rho / (2 (1 - rho)) steps
    step = 10 * MS
    record = serve(poisson(rho, 40_000, step), engine(max_tokens=1, max_seqs=1, caching=False))
    waits = [(r.scheduled_ps - r.arrival_ps) / step for r in record.requests]
    expected = rho / (2 * (1 - rho))
    assert math.fsum(waits) / len(waits) == pytest.approx(expected, rel=0.06)


def test_batch_service_serves_all_who_wait_at_once():
    # with room for all, whoever arrives during a step of length T starts at its end: the mean wait
    # of arrivals that find the server busy is T/2
    step = 10 * MS
    record = serve(poisson(3.0, 20_000, step), engine(max_tokens=64, max_seqs=64, caching=False))
    waits = [(r.scheduled_ps - r.arrival_ps) / step for r in record.requests]
    busy = [w for w in waits if w > 0]
    assert max(waits) < 1
    assert math.fsum(busy) / len(busy) == pytest.approx(0.5, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 20)),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 6),
)
def test_littles_law_is_exact_in_a_run_that_ends_empty(shapes, max_seqs):
    arrivals = sorted(gap * 7 * MS for gap, _, _ in shapes)
    requests = [
        request(i, arrival, prompt=p, output=o)
        for i, (arrival, (_, p, o)) in enumerate(zip(arrivals, shapes, strict=True))
    ]
    record = serve(requests, engine(max_tokens=100, max_seqs=max_seqs), keep_steps=True)
    # time integral of the number waiting and running = sum of the times spent in the system
    events = [(r.arrival_ps, 1) for r in record.requests]
    events += [(r.last_token_ps, -1) for r in record.requests]
    inside = area = last = 0
    for time, change in sorted(events):
        area += inside * (time - last)
        inside, last = inside + change, time
    assert inside == 0
    assert area == sum(r.last_token_ps - r.arrival_ps for r in record.requests)
    # and of the batch alone: nobody pauses here, so it is admission to last token
    in_batch = sum(r.last_token_ps - r.scheduled_ps for r in record.requests)
    assert record.totals.seq_ps == in_batch
    assert Batch().measure(record)["batch_size_mean"] == in_batch / record.totals.busy_ps
