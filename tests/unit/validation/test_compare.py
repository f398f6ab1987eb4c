"""Figures, errors, groups and rankings, by hand."""

import math

import pandas as pd
import pytest

from servesim.gaps import Gaps
from servesim.records import PrefixStats, RequestRecord, RunRecord, StepTotals
from validation.compare import ranking
from validation.compare.errors import relative_error, spread
from validation.compare.figures import error_by_load, predicted_against_measured
from validation.compare.grouping import coverage, grouped
from validation.compare.markdown import markdown
from validation.compare.statistics import ServedRequest, of_record, of_requests

MS = 10**9  # picoseconds


def served_in(rid, arrival_ms, first_ms, last_ms, tokens, status="finished"):
    stamps = {
        "arrival_ps": arrival_ms * MS,
        "sent_ps": arrival_ms * MS,
        "queued_ps": arrival_ms * MS,
        "scheduled_ps": arrival_ms * MS,
        "first_token_ps": first_ms * MS,
        "last_token_ps": last_ms * MS,
    }
    counts = (
        "cached_tokens",
        "recomputed_tokens",
        "draft_tokens",
        "accepted_tokens",
        "preemptions",
    )
    return RequestRecord(
        rid=rid,
        name="",
        tenant="",
        priority=0,
        status=status,
        reason="",
        prompt_tokens=10,
        output_tokens=tokens,
        requested_tokens=tokens,
        **stamps,
        **dict.fromkeys(counts, 0),
    )


def run_of(*requests):
    totals = StepTotals(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, {})
    gaps = Gaps.of({2 * MS: 3, 10 * MS: 1})
    return RunRecord(tuple(requests), gaps, totals, (), PrefixStats(100, 40), 10, 1, 16)


def row(case, error, **others):
    measured = others.pop("measured", 100.0)
    known = {"source": "s", "metric": "ttft_ms", "statistic": "mean", "flags": "", "low": None}
    line = {"case": case, "error": error, "measured": measured, "high": None}
    return {**known, **line, "predicted": measured * (1 + error), **others}


def test_figures_of_requests_by_hand():
    figures = of_requests(
        [ServedRequest(10.0, 11.0, 13.0, 5, 3), ServedRequest(12.0, 12.5, 12.5, 1, 2)]
    )
    assert figures.value("ttft_ms", "mean") == 750.0
    assert figures.value("ttft_ms", "unspecified") == 750.0
    assert figures.value("ttft_ms", "p50") == 750.0
    assert figures.value("tpot_ms", "mean") == 500.0  # the reply of one token has none
    assert figures.value("e2e_ms", "p99") == pytest.approx(2975.0)  # 500 … 3000 ms
    assert figures.value("makespan_s", "value") == 3.0
    assert figures.value("output_tokens_per_s", "value") == 2.0
    assert figures.value("total_tokens_per_s", "value") == pytest.approx(11 / 3)
    assert figures.value("itl_ms", "mean") is None
    assert figures.value("ttft_ms", "value") is None


def test_figures_of_a_simulated_run():
    run = run_of(
        served_in(0, 0, 5, 25, 3),
        served_in(1, 10, 30, 40, 2),
        served_in(2, 11, 50, 60, 2, "failed"),
    )
    figures = of_record(run)
    assert figures.value("ttft_ms", "mean") == pytest.approx(
        12.5
    )  # 5 and 20; the failed one does not count
    assert figures.value("tpot_ms", "p50") == pytest.approx(10.0)
    assert figures.value("itl_ms", "mean") == 4.0  # three gaps of 2 ms and one of 10
    assert figures.value("prefix_hit_tokens", "value") == 40
    stage = of_record(run, {1})
    assert stage.value("ttft_ms", "mean") == pytest.approx(20.0)
    assert stage.value("itl_ms", "mean") is None  # known of the whole run only


def test_a_run_in_which_nothing_finished_has_no_figures():
    figures = of_record(run_of(served_in(0, 0, 5, 6, 2, "failed")))
    assert figures.value("ttft_ms", "mean") is None
    assert figures.value("makespan_s", "value") is None


def test_errors_are_shares_of_what_was_measured():
    assert relative_error(90.0, 100.0) == -0.1
    assert relative_error(0.0, 0.0) == 0.0
    assert math.isnan(relative_error(1.0, 0.0))


def test_a_spread_by_hand():
    assert spread([0.1, -0.3, 0.2]) == pytest.approx(
        {"n": 3, "median": 0.2, "p90": 0.28, "mean_signed": 0.0, "worst": 0.3}
    )


def test_groups_name_their_worst_case_and_leave_out_what_has_no_error():
    rows = pd.DataFrame(
        [row("a", 0.1), row("b", -0.4, flags="congested"), row("c", float("nan")), row("d", 0.2)]
    )
    (line,) = grouped(rows, ["source", "metric"]).to_dict("records")
    assert line["n"] == 3
    assert line["median"] == 0.2
    assert (line["worst"], line["worst_case"], line["worst_flags"]) == (0.4, "b", "congested")
    assert math.isnan(line["coverage"])


def test_coverage_counts_rows_with_an_interval():
    rows = pd.DataFrame(
        [
            row("a", 0.1, low=90.0, high=110.0),
            row("b", 0.1, low=101.0, high=110.0),
            row("c", 0.1),
        ]
    )
    assert coverage(rows) == 0.5


def test_pairs_differ_in_one_setting_and_agree_or_not():
    rows = pd.DataFrame(
        [
            row("a", 0.0, measured=100.0, gpu="x", tp=1),
            row("b", 0.5, measured=60.0, gpu="x", tp=2),  # measured −40 %, predicted −10 %
            row("c", 0.1, measured=101.0, gpu="y", tp=1),  # measured a tie, predicted +11 %
            row("d", 1.0, measured=50.0, gpu="y", tp=2),  # against c −50 and −10, against b +11
        ]
    )
    pairs = ranking.pairs(rows, ["gpu", "tp"]).set_index(["case_a", "case_b"])
    assert sorted(pairs.index) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert pairs["verdict"].to_dict() == {
        ("a", "c"): "tie on one side",
        ("b", "d"): "reversed",
        ("a", "b"): "agree",
        ("c", "d"): "agree",
    }
    assert pairs.at[("a", "b"), "setting"] == "tp"
    assert pairs.at[("a", "b"), "measured_change"] == pytest.approx(-0.4)
    summary = ranking.summary(pairs.reset_index()).set_index("setting")
    assert summary.at["tp", "agree"] == 1.0
    assert summary.loc["gpu", ["pairs", "distinct", "agree", "reversed"]].tolist() == [2, 1, 0, 0.5]
    assert summary.at["gpu", "order"] == 0.0


def test_tables_write_shares_as_percent():
    table = pd.DataFrame({"metric": ["a|b"], "n": [3], "median": [0.123], "mean_signed": [-0.05]})
    assert markdown(table, ["metric", "n", "median", "mean_signed"]).splitlines() == [
        "| metric | n | median |e| | mean e |".replace("|e|", "\\|e\\|"),
        "|---|---:|---:|---:|",
        "| a\\|b | 3 | 12.3% | −5.0% |",
    ]


def test_figures_are_drawn_and_nothing_is_of_nothing(tmp_path):
    trust = {"congested": False, "at_a_time": 4.0, "kv_share": 0.1}
    rows = pd.DataFrame([row("a", 0.1, **trust), row("b", -0.2, metric="tpot_ms", **trust)])
    for draw in (predicted_against_measured, error_by_load):
        draw(rows, tmp_path / f"{draw.__name__}.png")
        draw(rows.assign(error=float("nan")), tmp_path / "none.png")
        assert (tmp_path / f"{draw.__name__}.png").stat().st_size > 1000
    assert not (tmp_path / "none.png").exists()
