"""Experiments, shrunk: each still runs, ranks and draws."""

import os
from pathlib import Path

import pandas as pd
import pytest

from experiments.policy_comparison.__main__ import main
from experiments.policy_comparison.plot import plot
from experiments.policy_comparison.ranking import rank

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SERVESIM_DATA", ROOT.parent / "shared" / "data"))
ORDERS = ("fcfs", "priority", "shortest_prompt", "sjf_predicted")
SHRUNK = ("seed=1,2", "workload.rate_rps=2,20", "hydra/launcher=basic")


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
    assert main([*arguments, *SHRUNK]) == 0
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison_azure" / "rows.csv")
    assert (rows["finished"] == 40).all()
    assert rows["order"].nunique() == len(ORDERS)


def test_rows_that_are_not_there_are_named(capsys):
    assert main(["rows=nowhere/rows.csv"]) == 2
    assert "nowhere/rows.csv" in capsys.readouterr().err


def test_a_bad_setting_ends_the_experiment_with_one_line(capsys):
    assert main(["policies/order=fcfs,fcsf"]) == 2
    assert "did you mean 'fcfs'?" in capsys.readouterr().err


@pytest.mark.long
def test_the_finding_of_the_readme_is_what_make_run_shows(tmp_path):
    assert main([]) == 0
    rows = pd.read_csv(tmp_path / "outputs" / "policy_comparison" / "rows.csv")
    good = rows.groupby(["rate_rps", "order"])["goodput_rps"].mean().round(2)
    assert good[4.0].to_dict() == {
        "fcfs": 0.89,
        "priority": 1.80,
        "shortest_prompt": 2.48,
        "sjf_predicted": 1.95,
    }
    low = rows[rows["rate_rps"] <= 2.5].groupby("rate_rps")["goodput_rps"]
    assert (low.max() / low.min() < 1.1).all()
