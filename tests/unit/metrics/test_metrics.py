"""Metric definitions on records made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import MS, engine, request, serve

from servesim.errors import ServesimError
from servesim.gaps import Gaps
from servesim.metrics.base import duration_s, e2e_s, tpot_s, ttft_s
from servesim.metrics.batch import Batch
from servesim.metrics.cache import Cache
from servesim.metrics.distribution import Distribution
from servesim.metrics.goodput import Goodput
from servesim.metrics.latency import Latency
from servesim.metrics.outcome import Outcome
from servesim.metrics.overload import Overload
from servesim.metrics.throughput import Throughput
from servesim.records import PrefixStats, RequestRecord, RunRecord, StepTotals

SECOND = 10**12


def finished(rid, arrival=0.0, first=1.0, last=2.0, tokens=11, scheduled=None, **more):
    def ps(seconds):
        return None if seconds is None else round(seconds * SECOND)

    fields = {
        "status": "finished",
        "reason": "",
        "cached_tokens": 0,
        "recomputed_tokens": 0,
        "preemptions": 0,
        "prompt_tokens": 100,
    } | more
    return RequestRecord(
        rid=rid,
        name="",
        tenant="",
        priority=0,
        output_tokens=tokens,
        requested_tokens=tokens,
        arrival_ps=ps(arrival),
        sent_ps=ps(arrival),
        queued_ps=ps(arrival),
        scheduled_ps=ps(arrival if scheduled is None else scheduled),
        first_token_ps=ps(first),
        last_token_ps=ps(last),
        draft_tokens=0,
        accepted_tokens=0,
        **fields,
    )


def rejected(rid, reason="prompt + max_tokens = 9000 > max_model_len 4096"):
    record = finished(rid, first=None, last=None, tokens=0, status="rejected", reason=reason)
    return RequestRecord(
        **{
            **{name: getattr(record, name) for name in RequestRecord.__slots__},
            "queued_ps": None,
            "scheduled_ps": None,
        }
    )


def run_of(*records, itl=None, end=2.0, totals=None, prefix=(0, 0)):
    empty = StepTotals(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {})
    return RunRecord(
        records,
        Gaps.of(itl or {}),
        totals or empty,
        (),
        PrefixStats(*prefix),
        100,
        round(end * SECOND),
        16,
    )


def test_latencies_of_one_request_by_hand():
    record = finished(0, arrival=0.5, first=1.0, last=2.0, tokens=11)
    assert (ttft_s(record), tpot_s(record), e2e_s(record)) == (0.5, 0.1, 1.5)


def test_a_reply_of_one_token_has_no_tpot():
    assert tpot_s(finished(0, first=1.0, last=1.0, tokens=1)) is None


def test_an_unfinished_request_has_a_ttft_and_no_e2e():
    record = finished(0, status="unfinished")
    assert (ttft_s(record), e2e_s(record)) == (1.0, None)


def test_tpot_is_one_second_whether_tokens_come_singly_or_in_tens():
    # a public case: one token a second against ten tokens every ten seconds
    singly = finished(0, first=0.0, last=49.0, tokens=50)
    assert tpot_s(singly) == 1.0
    row = Latency().measure(run_of(singly, itl={10 * SECOND: 4}))
    assert row["itl_mean_s"] == 10.0


def test_mean_tpot_weighs_requests_and_mean_itl_weighs_tokens():
    slow = finished(0, first=0.0, last=2.0, tokens=2)  # one gap of 2 s
    fast = finished(1, first=0.0, last=8.0, tokens=9)  # eight gaps of 1 s
    row = Latency().measure(run_of(slow, fast, itl={2 * SECOND: 1, SECOND: 8}))
    assert row["tpot_mean_s"] == 1.5
    assert row["itl_mean_s"] == pytest.approx(10 / 9)


def test_percentiles_are_chosen_and_named():
    row = Latency(percentiles=[50, 99.9]).measure(run_of(finished(0), finished(1, first=3.0)))
    assert row["ttft_p50_s"] == 2.0
    assert "ttft_p99.9_s" in row
    assert "ttft_p99_s" not in row


def test_a_percentile_outside_its_range_is_refused():
    with pytest.raises(ServesimError, match=r"percentiles=101"):
        Latency(percentiles=[50, 101])


def test_a_run_without_tokens_has_no_latencies():
    row = Latency().measure(run_of(rejected(0)))
    assert row["ttft_mean_s"] is None
    assert row["itl_p99_s"] is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 100))
def test_percentiles_are_numpys(values, q):
    expected = np.percentile(values, q)
    assert Distribution.of(values).percentile(q) == pytest.approx(expected, rel=1e-12, abs=1e-9)


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 9), min_size=1), st.floats(0, 100))
def test_weighted_values_are_the_repeated_ones(counts, q):
    repeated = [value for value, count in counts.items() for _ in range(count)]
    ascending = sorted(counts)
    weighted = Distribution.weighted(ascending, [counts[value] for value in ascending])
    assert weighted.percentile(q) == Distribution.of(repeated).percentile(q)
    assert weighted.mean() == pytest.approx(Distribution.of(repeated).mean())
    assert weighted.count == len(repeated)


def test_of_nothing_there_is_no_mean():
    assert math.isnan(Distribution.of([]).mean())
    assert math.isnan(Distribution.of([]).percentile(50))


def test_goodput_counts_a_limit_that_is_just_met():
    met = finished(0, first=2.0, last=3.0, tokens=11)  # TTFT 2 s, TPOT 0.1 s
    late = finished(1, first=2.001, last=3.0, tokens=11)
    slow = finished(2, first=1.0, last=2.1, tokens=11)
    short = finished(3, first=2.0, last=2.0, tokens=1)
    row = Goodput(2.0, 0.1).measure(run_of(met, late, slow, short, end=4.0))
    assert row["goodput_rps"] == 2 / 4
    assert row["slo_attainment"] == 0.5


def test_rejected_and_unfinished_requests_stay_in_the_denominator():
    cut = finished(2, status="unfinished")
    row = Goodput().measure(run_of(finished(0), rejected(1), cut))
    assert row["slo_attainment"] == 1 / 3


def test_outcomes_add_up_and_name_the_commonest_rejection():
    row = Outcome().measure(run_of(finished(0), rejected(1), finished(2, status="unfinished")))
    assert row["requests"] == row["finished"] + row["rejected"] + row["unfinished"] + row["failed"]
    assert row["rejected_reason"] == "prompt + max_tokens > max_model_len 4096"


def test_throughput_is_from_the_first_arrival_on():
    run = run_of(finished(0, arrival=1.0, tokens=11), finished(1, arrival=1.5, tokens=9), end=6.0)
    row = Throughput().measure(run)
    assert duration_s(run) == 5.0
    assert row["request_throughput_rps"] == 2 / 5
    assert row["output_throughput_tokens_per_s"] == 20 / 5
    assert row["total_throughput_tokens_per_s"] == 220 / 5


def test_hit_rate_and_recomputed_share_by_hand():
    totals = StepTotals(10, SECOND, 400, 0, 0, 0, 0, 0, 0, 0, {})
    run = run_of(
        finished(0, recomputed_tokens=30, preemptions=2),
        finished(1, recomputed_tokens=10, preemptions=1),
        finished(2),
        totals=totals,
        prefix=(300, 75),
    )
    row = Cache().measure(run)
    assert (row["prefix_hit_rate"], row["preemptions"], row["preempted_requests"]) == (0.25, 3, 2)
    assert (row["recomputed_tokens"], row["recomputed_share"]) == (40, 0.1)


def test_recomputed_tokens_of_preempted_requests_are_no_prefix_hits():
    # a public case: the hit rate of random prompts in a full pool was 30 % before this rule
    requests = [request(i, 0, prompt=16, output=40) for i in range(8)]
    record = serve(requests, engine(blocks=60, max_model_len=200))
    row = Cache().measure(record)
    assert row["preemptions"] > 0
    assert row["prefix_hit_rate"] == 0


def test_batch_means_are_weighted_by_time():
    # 1 request for 1 s and 3 requests for 3 s, holding 10 and 50 of 100 blocks
    totals = StepTotals(2, 4 * SECOND, 40, 4, 10 * SECOND, 160 * SECOND, 50, 3, 0, 0, {})
    row = Batch().measure(run_of(finished(0), end=8.0, totals=totals))
    assert row["batch_size_mean"] == 2.5
    assert row["kv_use_mean"] == 0.4
    assert row["kv_use_max"] == 0.5
    assert row["busy_fraction"] == 0.5
    assert row["tokens_per_step"] == 20


def test_a_replica_that_keeps_up_is_not_overloaded():
    row = Overload().measure(run_of(*(finished(i, arrival=i, scheduled=i) for i in range(100))))
    assert row["rho"] == 1.0
    assert row["overloaded"] is False


def test_a_queue_that_grows_is_overload_with_its_rate():
    # one request a second comes, one every two seconds starts
    row = Overload().measure(run_of(*(finished(i, arrival=i, scheduled=2 * i) for i in range(100))))
    assert row["overloaded"] is True
    assert row["rho"] == pytest.approx(2.0, rel=0.05)
    assert row["backlog_growth_rps"] == pytest.approx(0.5, rel=0.05)
    assert row["offered_rps"] == pytest.approx(1.0)


def test_too_few_requests_say_nothing_about_the_load():
    row = Overload().measure(run_of(*(finished(i, arrival=i, scheduled=9 * i) for i in range(10))))
    assert row["overloaded"] is None


def test_overload_in_a_simulated_run_shows_as_it_is():
    # steps of 10 ms serve one request each: 100 requests/s; 150 requests/s come
    requests = [request(i, i * 20 * MS // 3, prompt=1, output=1) for i in range(300)]
    row = Overload().measure(serve(requests, engine(max_tokens=1, max_seqs=1)))
    assert row["overloaded"] is True
    assert row["rho"] == pytest.approx(1.5, rel=0.02)
