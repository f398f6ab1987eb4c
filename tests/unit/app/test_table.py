"""The rows of the table that a run prints."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

import servesim
from servesim.app.table import print_result

LOAD = ("workload=fixed", "workload.num_requests=6", "cost=roofline")


@pytest.fixture(scope="module")
def result():
    return servesim.simulate(*LOAD)


def lines_of(result, **changed):
    result = dataclasses.replace(result, summary={**result.summary, **changed})
    console = Console(file=io.StringIO(), width=100)
    print_result(result, console)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_latencies_have_mean_and_percentiles_in_the_unit_of_their_label(result):
    lines = lines_of(result, ttft_mean_s=1.25, ttft_p50_s=1.0, ttft_p90_s=2.0, ttft_p99_s=3.0)
    assert lines[0] == "fcfs at 1 requests/s mean p50 p90 p99"
    assert lines[1] == "TTFT, s 1.250 1.000 2.000 3.000"
    (tpot,) = [line for line in lines if line.startswith("TPOT, ms")]
    assert float(tpot.split()[2]) == pytest.approx(result.summary["tpot_mean_s"] * 1e3, abs=0.05)


def test_rows_name_the_limits_and_shares(result):
    text = "\n".join(
        lines_of(result, slo_attainment=0.625, recomputed_tokens=1234, recomputed_share=0.031)
    )
    assert "within TTFT ≤ 2 s, TPOT ≤ 100 ms 62.5%" in text
    assert "recomputed tokens 1,234" in text
    assert "recomputed, of all tokens 3.1%" in text


def test_the_percentile_method_and_skipped_steps_are_noted(result):
    text = "\n".join(lines_of(result, steps_skipped=1200, steps=1300))
    assert "- percentiles by linear interpolation, latencies from the intended arrival" in text
    assert "- 1,200 of 1,300 steps decide nothing and were not looked at one by one" in text
    assert "decide nothing" not in "\n".join(lines_of(result, steps_skipped=0))


def test_users_and_their_front_end_are_told_and_no_others():
    closed = ("workload=closed_loop", "workload.num_requests=6", "workload.concurrency=3")
    lines = lines_of(servesim.simulate(*closed, "cost=roofline", "front_end.output_s=0.002"))
    assert lines[0] == "fcfs at a concurrency of 3 mean p50 p90 p99"
    assert "- percentiles by linear interpolation, latencies from sending" in lines
    assert any(line.startswith("- closed loop: each of 3 users") for line in lines)
    assert any("2 ms from a step to the client" in line for line in lines)
    assert "other" not in lines


def test_what_the_table_does_not_know_is_shown_all_the_same(result):
    lines = lines_of(result, joules_per_token=0.5, verdict="fine", gpus=3)
    (at,) = [i for i, line in enumerate(lines) if line == "other"]
    text = " ".join(lines[at + 1 : at + 3])
    for shown in ("joules_per_token 0.50", "verdict fine", "gpus 3"):
        assert shown in text


def test_columns_of_our_own_metrics_are_no_others(result):
    assert "other" not in lines_of(result)


def test_no_value_and_no_metric_make_no_figure(result):
    assert re.search(r"prefix hit rate -", "\n".join(lines_of(result, prefix_hit_rate=None)))
    alone = servesim.simulate(*LOAD, "metrics=[latency]")
    assert not any("goodput" in line for line in lines_of(alone))


def test_every_latency_percentile_asked_for_is_a_column():
    lines = lines_of(servesim.simulate(*LOAD, "metrics.latency.percentiles=[5,99.9]"))
    assert lines[0].endswith("mean p5 p99.9")
