"""Experiments, shrunk: each still runs, ranks and draws."""

import math
import os
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import experiments.compare
import experiments.compare.plot
import experiments.compare.ranking
from experiments.policy_comparison.__main__ import ORDERS as COMPARISON

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SERVESIM_DATA") or ROOT.parent / "shared" / "data")
ORDERS = ("fcfs", "priority", "shortest_prompt", "sjf_predicted")
BRIEF = ("policies/order=fcfs,priority", "seed=1", "workload.num_requests=5", "cost=roofline")
BASIC = "hydra/launcher=basic"
SHRUNK = ("seed=1,2", "workload.rate_rps=2,20", "hydra/launcher=basic")


def main(arguments):
    return experiments.compare.main(COMPARISON, arguments)


def rank(rows):
    return experiments.compare.ranking.rank(rows, COMPARISON)


def plot(rows, path):
    return experiments.compare.plot.plot(rows, COMPARISON, path)


def print_ranking(ranking, console):
    experiments.compare.ranking.print_ranking(ranking, COMPARISON, console)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows_of(goodput):
    """A row per (order, seed): goodput[order] is a list over seeds."""
    columns = ("ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "slo_attainment")
    return pd.DataFrame(
        {"order": order, "rate_rps": 2.0, "seed": seed, "goodput_rps": value, "overloaded": False}
        | dict.fromkeys(columns, 0.5)
        for order, values in goodput.items()
        for seed, value in enumerate(values)
    )


def test_policies_rank_by_mean_goodput_over_seeds():
    ranking = rank(rows_of({"fcfs": [1.0, 3.0], "priority": [2.5, 2.7], "aaa": [2.0, 2.0]}))
    assert list(ranking["order"]) == ["priority", "aaa", "fcfs"]
    fcfs = ranking.set_index("order").loc["fcfs"]
    assert (fcfs["goodput_rps"], fcfs["goodput_low"], fcfs["goodput_high"]) == (2.0, 1.0, 3.0)


def test_the_figure_is_written_as_png_and_pdf(tmp_path):
    written = plot(rows_of({order: [1.0, 2.0] for order in ORDERS}), tmp_path / "figure")
    assert [path.suffix for path in written] == [".png", ".pdf"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[1].read_bytes().startswith(b"%PDF")


def test_the_comparison_runs_ranks_and_draws(capsys, tmp_path):
    assert main([*SHRUNK, "workload.num_requests=40"]) == 0
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison" / "rows.csv")
    assert len(rows) == len(ORDERS) * 2 * 2
    assert (rows["finished"] == 40).all()
    # common random numbers: under one seed all policies see the same requests
    assert (rows.groupby("seed")[["prompt_tokens", "output_tokens"]].nunique() == 1).all(axis=None)
    assert (tmp_path / "outputs" / "policy_comparison" / "policy_comparison.png").is_file()
    printed = capsys.readouterr().out
    assert all(order in printed for order in ORDERS)
    assert "means of 2 seeds" in printed


def test_the_comparison_on_the_recorded_trace(tmp_path):
    if not DATA.is_dir():
        pytest.skip(f"needs public measurements at {DATA}; set SERVESIM_DATA")
    path = DATA / "azure-llm-2023" / "AzureLLMInferenceTrace_conv.csv"
    arguments = ("experiment=policy_comparison_azure", "workload.limit=40", f"workload.path={path}")
    assert main([*arguments, *SHRUNK, "seed=1"]) == 0  # a trace has the same requests under any
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison_azure" / "rows.csv")
    assert (rows["finished"] == 40).all()
    assert rows["order"].nunique() == len(ORDERS)


def test_a_bad_setting_ends_the_experiment_with_one_line(capsys):
    assert main(["policies/order=fcfs,fcsf"]) == 2
    assert "did you mean 'fcfs'?" in capsys.readouterr().err


def test_fewer_runs_in_the_same_folder_are_ranked_by_themselves(capsys, tmp_path):
    assert main([*BRIEF, BASIC, "workload.rate_rps=2,3"]) == 0
    assert main([*BRIEF, BASIC, "workload.rate_rps=5"]) == 0
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison" / "rows.csv")
    assert set(rows["rate_rps"]) == {5}
    ranking = capsys.readouterr().out.rpartition("load ")[2]
    assert "3 " not in [line[:2] for line in ranking.splitlines()]


def test_a_failed_sweep_is_not_ranked_by_what_an_earlier_one_left(capsys):
    assert main([*BRIEF, BASIC, "workload.rate_rps=2"]) == 0
    capsys.readouterr()
    assert main([*BRIEF, BASIC, "policies/order=fcfs,fcsf"]) == 2
    assert capsys.readouterr().out == ""
    assert main([*BRIEF, BASIC, "workload.rate_rps=-2"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "error: 2 of 2 runs failed: workload.rate_rps=-2: must be above 0"
    ]


def test_an_infinite_rate_and_a_traces_own_are_ranked_too(capsys, tmp_path):
    finite = rows_of({"fcfs": [1.0], "priority": [2.0]})
    rows = pd.concat([finite, finite.assign(rate_rps=math.inf), finite.assign(rate_rps=math.nan)])
    ranking = rank(rows)
    assert len(ranking) == 6
    print_ranking(ranking, Console(width=100))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:8:2]] == ["2", "inf", "trace's"]
    assert len(plot(rows, tmp_path / "figure")) == 2
    assert plot(rows[rows["rate_rps"] != 2.0], tmp_path / "none") == []


REFUSED = {
    "dir=/etc/hostname": "cannot write to output directory /etc/hostname",
    "metrics=[latency]": "objective='goodput_rps': is no column of summary.json",
    "rows=other.csv": "other.csv: lacks order, seed, overloaded, ttft_p50_s",
    "rows=empty.csv": "empty.csv: is no CSV table",
    "rows=words.csv": "words.csv: goodput_rps holds what is no number",
    "rows=.": "cannot be read: Is a directory",
    "rows=nowhere/rows.csv": "nowhere/rows.csv: cannot be read",
    "experiment=null": "experiment: no option is chosen",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_mistakes_are_one_line(argument, capsys, tmp_path):
    (tmp_path / "other.csv").write_text("rate_rps,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    words = rows_of({"fcfs": [1.0]}).assign(goodput_rps="good")
    words.to_csv(tmp_path / "words.csv")
    assert main([*BRIEF, BASIC, "workload.rate_rps=2", argument]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert REFUSED[argument] in lines[0]


def test_a_single_run_is_no_comparison(capsys):
    assert main(["hydra.mode=RUN", "workload.num_requests=5", BASIC]) == 2
    assert "experiment=policy_comparison made no sweep" in capsys.readouterr().err


@pytest.mark.long
def test_the_finding_of_the_readme_is_what_make_run_shows(tmp_path):
    assert main([]) == 0
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison" / "rows.csv")
    good = rows.groupby(["rate_rps", "order"])["goodput_rps"].mean().round(2)
    assert good[4.5].to_dict() == {
        "fcfs": 1.22,
        "priority": 2.14,
        "shortest_prompt": 2.84,
        "sjf_predicted": 2.24,
    }
    low = rows[rows["rate_rps"] <= 3].groupby("rate_rps")["goodput_rps"]
    assert (low.max() / low.min() < 1.1).all()


def test_the_speed_experiment_compares_both_loops(capsys):
    import json

    from experiments.speed.__main__ import main as speed
    from experiments.speed.cases import CASES

    assert speed(["requests=60", "output.format=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * len(CASES)
    for row in rows:
        assert row["requests_per_s"] > 0
        assert row["peak_rss_mib"] > 0
        assert (row["steps_per_decision"] > 1.5) == (not row["stepwise"])
    assert speed(["case=conversation"]) == 2
    assert "did you mean 'conversations'?" in capsys.readouterr().err
