"""The front end's door: what an admission policy sees, and where the refused ones are counted."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim.metrics.goodput import Goodput
from servesim.metrics.outcome import Outcome
from servesim.policies.admission.kv_headroom import KVHeadroom
from servesim.policies.admission.queue_limit import QueueLimit

EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "100"))


class Watch:
    """Refuses nobody and remembers what it has seen."""

    def __init__(self):
        self.seen = []

    def refuse(self, request, load):
        self.seen.append((load.num_waiting, load.num_running, load.kv_blocks_used))


def statuses(record):
    return [r.status for r in record.requests]


@pytest.mark.parametrize("stepwise", [True, False])
def test_the_load_is_that_of_the_moment_also_in_the_middle_of_a_run(stepwise):
    # blocks of one token: step 1 computes 4 tokens, each later one a token more
    watch = Watch()
    arrivals = [request(0, 0, 4, 20), *(request(i, i * 30 * MS + 1, 1, 1) for i in (1, 2))]
    scheduler = engine(block_size=1, max_seqs=1, stepwise=stepwise)
    serve(arrivals, scheduler, admission=watch)
    # step 4 is under way at 30 ms + 1 ps, step 7 at 60 ms + 1 ps
    assert watch.seen == [(0, 0, 0), (0, 1, 7), (1, 1, 10)]


def test_a_full_queue_refuses_and_says_so():
    # one seat, 30 ms each: 0 runs, 1 and 2 wait, 3 is refused; 4 comes when only 2 waits
    requests = [request(0, 0, 4, 3), *(request(i, i * MS, 4, 3) for i in (1, 2, 3))]
    requests.append(request(4, 31 * MS, 4, 3))
    record = serve(requests, engine(max_seqs=1), admission=QueueLimit(2))
    assert statuses(record) == ["finished"] * 3 + ["rejected", "finished"]
    refused = record.requests[3]
    assert refused.reason == "HTTP 503: num_waiting = 2 >= max_queued_reqs 2"
    assert (refused.queued_ps, refused.output_tokens) == (None, 0)
    row = Outcome().measure(record)
    assert row["rejected"] == 1
    assert row["rejected_reason"] == "HTTP 503: num_waiting >= max_queued_reqs 2"


def test_of_many_at_once_as_many_are_let_in_as_may_wait():
    record = serve([request(i) for i in range(5)], admission=QueueLimit(2))
    assert statuses(record) == ["finished"] * 2 + ["rejected"] * 3


def test_a_nearly_full_cache_refuses_until_somebody_ends():
    # 10 blocks of 4: request 0 holds 5 from its first step on, and is gone at 20 ms
    requests = [request(0, 0, 18, 2), request(1, 1 * MS, 4, 2), request(2, 21 * MS, 4, 2)]
    for share, expected in ((0.5, "rejected"), (0.51, "finished")):
        record = serve(requests, engine(blocks=11), admission=KVHeadroom(share))
        assert statuses(record) == ["finished", expected, "finished"]
    refused = serve(requests, engine(blocks=11), admission=KVHeadroom(0.5)).requests[1]
    assert refused.reason == "HTTP 503: kv_use = 0.500 >= max_kv_use 0.5"


def test_the_engine_refuses_before_the_policy_is_asked():
    record = serve([request(0, 0, 9000, 2)], admission=QueueLimit(1))
    assert record.requests[0].reason.startswith("prompt + max_tokens = 9002")


def test_refused_requests_stay_in_the_denominator_of_goodput():
    # 2 of 5 served, both within the limits: 40 %, and not 100 % of those that were let in
    record = serve([request(i) for i in range(5)], admission=QueueLimit(2))
    row = Goodput(ttft_s=1.0, tpot_s=1.0).measure(record)
    assert row["slo_attainment"] == 0.4
    assert row["goodput_rps"] == pytest.approx(2 / 0.020)  # good ones alone, over two steps


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, MS, 10 * MS, 33 * MS, 87 * MS + 1, 200 * MS]),
            st.integers(1, 40),
            st.integers(1, 45),
        ),
        min_size=1,
        max_size=14,
    ),
    st.sampled_from([1, 1, 2, 4]),
    st.sampled_from([1, 3, 9]),
    st.booleans(),
    st.sampled_from([None, 60 * MS, 200 * MS]),
    st.sampled_from([QueueLimit(2), *(KVHeadroom(share / 10) for share in range(1, 10))]),
)
def test_skipping_equals_stepping_with_a_door(loads, size, seats, caching, until, admission):
    requests, arrival = [], 0
    for rid, (gap, prompt, output) in enumerate(loads):
        arrival += gap
        requests.append(request(rid, arrival, prompt, output))
    stepped, skipped = (
        serve(
            requests,
            engine(
                blocks=2 + 100 // size,
                block_size=size,
                max_seqs=seats,
                max_model_len=96,
                caching=caching,
                stepwise=stepwise,
            ),
            LinearTimer(per_token=MS // 3),
            keep_steps=True,
            until_ps=until,
            admission=admission,
        )
        for stepwise in (True, False)
    )
    assert skipped.requests == stepped.requests
    assert skipped == stepped
