"""`python -m validation.score` on a handful of cases made by hand."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from servesim.errors import ServesimError
from tests.unit.validation.measured_cases import CASE, case
from validation.cases.case import Limits
from validation.cases.format import write_case
from validation.cases.workloads import ClosedLoop, Fixed, OpenLoop, Stage
from validation.score.__main__ import main
from validation.score.pool import score_all
from validation.score.predict import score_case
from validation.score.rows import COLUMNS
from validation.score.summary import knee, score_of


@pytest.fixture
def cases(tmp_path):
    """One that is simulated, one twice as large, one not covered, one that fails."""
    folder = tmp_path / "cases"
    larger = replace(CASE.workload, prompt=Fixed(128))
    write_case(CASE, folder)
    write_case(case(name="b", workload=larger, measured={"ttft_ms": {"p50": 12.0}}), folder)
    write_case(case(name="c", not_covered="no such engine"), folder)
    write_case(case(name="d", model="nobody/nothing"), folder)
    return folder


def test_the_files_of_a_score(cases, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([f"cases={cases}", f"out={out}", "jobs=1"]) == 1  # d fails, the rest is written
    rows = pd.read_csv(out / "rows.csv")
    assert list(rows.columns) == list(COLUMNS)
    assert list(rows["case"]) == ["a", "a", "b", "c", "d"]
    assert list(rows["status"]) == ["scored"] * 3 + ["not covered", "failed"]
    first = rows.iloc[0]
    assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)
    assert first["flags"] == "roofline cost, derived blocks"
    assert "nobody/nothing" in rows.iloc[4]["reason"]
    groups = pd.read_csv(out / "groups.csv", keep_default_na=False)
    everything = groups[groups["grouping"] == "all"].set_index(["metric", "statistic"])
    assert everything["n"].astype(int).to_dict() == {
        ("tpot_ms", "mean"): 1,
        ("ttft_ms", "p50"): 1,
        ("ttft_ms", "unspecified"): 1,
    }
    written = (out / "score.md").read_text()
    assert "Cases: 2 scored, 1 not covered, 1 failed." in written
    assert (out / "predicted_against_measured.png").is_file()
    printed = capsys.readouterr().out
    assert "- 1, e.g. c: no such engine" in printed
    assert "2 cases scored" in printed


def test_the_groups_as_json(cases, tmp_path, capsys):
    chosen = [f"cases={cases}", f"out={tmp_path / 'o'}", "filter=a", "jobs=1"]
    assert main([*chosen, "format=json"]) == 0
    groups = json.loads(capsys.readouterr().out)
    assert {g["metric"] for g in groups if g["grouping"] == "by GPU"} == {"ttft_ms", "tpot_ms"}


def test_processes_do_not_change_the_rows(tmp_path):
    measured = [CASE, case(name="b", model="nobody/nothing")]
    alone, shared = (score_all(measured, tmp_path, (), jobs, progress=False) for jobs in (1, 2))
    assert alone == shared
    assert [row["case"] for row in alone] == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "cases=DIR must be given"),
        (["cases="], "cases=DIR must be given"),
        (["cases=/nowhere"], "cases=/nowhere: no such folder"),
        (["cases={empty}"], "no *.yaml in it"),
        (["cases={cases}", "filter=x*"], "none of the 4 cases is called so"),
        (["cases={cases}", "jobs=0"], "jobs='0'"),
        (["cases={cases}", "format=jsn"], "did you mean 'json'"),
        (["cases={cases}", "quick"], "cannot read 'quick'"),
        (["cases={cases}", "filter=a", "jobs=1", "sede=3"], "did you mean 'seed'"),
    ],
)
def test_bad_input_is_one_line_and_2(arguments, said, cases, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    places = {"{empty}": str(tmp_path / "empty"), "{cases}": str(cases)}
    for name, place in places.items():
        arguments = [word.replace(name, place) for word in arguments]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_bad_case_is_named(cases, capsys):
    (cases / "e.yaml").write_text("name: e\nengine: [\n")
    assert main([f"cases={cases}", "jobs=1"]) == 2
    assert "e.yaml" in capsys.readouterr().err


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "cases=DIR" in capsys.readouterr().out


def test_a_setting_is_laid_over_every_case(tmp_path):
    plain = score_case(CASE, tmp_path)
    slower = score_case(CASE, tmp_path, ["cost.host_overhead_s=0.1"])
    assert slower[1]["predicted"] > plain[1]["predicted"] + 80


def test_a_mistake_of_ours_in_one_case_does_not_lose_the_others(tmp_path, monkeypatch):
    def broken(asked, folder, overrides):
        if asked.name == "bad":
            raise KeyError("x")
        return score_case(asked, folder, overrides)

    monkeypatch.setattr("validation.score.pool.score_case", broken)
    rows = score_all([case(name="bad"), CASE], tmp_path, (), 1, progress=False)
    assert [row["status"] for row in rows] == ["failed", "scored", "scored"]
    assert rows[0]["reason"] == "KeyError: 'x'"


def test_a_figure_that_the_run_lacks_is_a_row_without_an_error(tmp_path):
    alone = case(
        workload=ClosedLoop(1, 2, Fixed(64), Fixed(1)), measured={"tpot_ms": {"mean": 1.0}}
    )
    (row,) = score_case(alone, tmp_path)
    assert "error" not in row
    assert row["reason"] == "the simulation has no tpot_ms mean"


def test_a_congested_case_is_compared_with_its_run_without_memory_limits(tmp_path):
    # 8 users × (320 + 64) tokens, and 32 blocks of 16 tokens but one: one of them at a time
    short = case(
        workload=ClosedLoop(8, 24, Fixed(320), Fixed(64)),
        limits=Limits(num_gpu_blocks=32),
        measured={"ttft_ms": {"mean": 5000.0}},
    )
    (row,) = score_case(short, tmp_path)
    assert row["kv_tokens"] == 31 * 16
    assert row["kv_share"] == pytest.approx(8 * 384 / (31 * 16))
    assert row["congested"]
    assert "congested" in row["flags"]
    assert row["predicted"] > 2 * row["unlimited"]
    assert row["measured_queued"]
    assert row["predicted_queued"]
    (roomy,) = score_case(replace(short, limits=Limits(num_gpu_blocks=1000)), tmp_path)
    assert "measured_queued" not in roomy  # 19 % of the cache: no queue for memory can be there


def test_both_sides_of_the_knee():
    def line(measured, predicted, congested=True):
        known = {"metric": "ttft_ms", "source": "s", "statistic": "mean", "error": 0.0}
        sides = {"measured_queued": measured, "predicted_queued": predicted}
        return {**known, **sides, "unlimited": 1.0, "congested": congested}

    rows = pd.DataFrame(
        [line(True, True), line(True, False), line(False, False), line(False, True)]
    )
    (found,) = knee(rows).to_dict("records")
    assert (found["n"], found["queued"], found["right_side"]) == (4, 2, 0.5)
    assert (found["missed"], found["invented"]) == (1, 1)


def test_stages_have_rows_of_their_own(tmp_path):
    stages = (Stage(2.0, 5.0), Stage(40.0, 1.0))
    figures = {"ttft_ms": {"mean": 10.0}}
    staged = case(
        workload=OpenLoop(50 / 6, "constant", 50, Fixed(512), Fixed(8), stages=stages),
        measured=figures,
        measured_by_stage=(figures, figures),
    )
    rows = score_case(staged, tmp_path)
    assert [row["part"] for row in rows] == ["run", "stage 0", "stage 1"]
    whole, calm, busy = (row["predicted"] for row in rows)
    assert calm < whole < busy
    assert whole == pytest.approx((10 * calm + 40 * busy) / 50)
    assert "by stage" in score_of(rows).groups


def test_rates_count_all_ranks_and_latencies_do_not(tmp_path):
    measured = {"output_tokens_per_s": {"value": 100.0}, "tpot_ms": {"mean": 8.0}}
    alone = score_case(case(measured=measured), tmp_path)
    ranks = case(measured=measured, dp=2, workload=ClosedLoop(4, 8, Fixed(64), Fixed(8)))
    both = score_case(ranks, tmp_path)
    assert both[0]["predicted"] == pytest.approx(2 * alone[0]["predicted"])
    assert both[1]["predicted"] == pytest.approx(alone[1]["predicted"])


def test_intervals_of_the_summary_become_coverage(tmp_path, monkeypatch):
    import servesim

    simulate = servesim.simulate

    def with_interval(*overrides):
        result = simulate(*overrides)
        ends = {"ttft_mean_s_low": 0.001, "ttft_mean_s_high": 0.1}
        return replace(result, summary={**result.summary, **ends})

    monkeypatch.setattr("servesim.simulate", with_interval, raising=False)
    rows = score_case(CASE, tmp_path)
    assert (rows[0]["low"], rows[0]["high"]) == (1.0, 100.0)  # ms
    table = score_of(rows).groups["all"].set_index("metric")
    assert table.at["ttft_ms", "coverage"] == 1.0


def test_a_case_that_cannot_be_simulated_says_why(tmp_path):
    with pytest.raises(ServesimError, match="max_num_batched_tokens"):
        score_case(case(limits=Limits(max_num_batched_tokens=4, max_num_seqs=8)), tmp_path)
