"""The command line: what it prints, what it writes, how it ends."""

import json

import pandas as pd
import pytest
import yaml

from servesim.__main__ import main

SMALL = ("workload=fixed", "workload.num_requests=5", "cost=roofline")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(capsys, *arguments):
    code = main(arguments)
    return code, capsys.readouterr()


def run_directory(tmp_path):
    (directory,) = (tmp_path / "outputs").glob("*/*")
    return directory


def test_a_run_prints_a_table_and_says_where_its_files_are(capsys, tmp_path):
    code, printed = run(capsys, *SMALL)
    assert code == 0
    for word in ("TTFT", "TPOT", "ITL", "E2E", "p99", "goodput", "prefix hit rate", "preemptions"):
        assert word in printed.out
    assert "KV blocks × 16 tokens" in printed.out
    assert f"files: {run_directory(tmp_path).relative_to(tmp_path)}" in printed.out
    assert printed.err == ""


def test_a_run_directory_holds_config_summary_run_and_requests(capsys, tmp_path):
    run(capsys, *SMALL, "seed=3", "kv_dtype=${dtype}")
    directory = run_directory(tmp_path)
    config = yaml.safe_load((directory / "config.yaml").read_text())
    summary = json.loads((directory / "summary.json").read_text())
    about = json.loads((directory / "run.json").read_text())
    requests = pd.read_parquet(directory / "requests.parquet")
    assert config["seed"] == summary["seed"] == about["seed"] == 3
    assert config["policies"]["order"]["_target_"].endswith(".Fcfs")  # composed
    assert config["kv_dtype"] == "bf16"  # resolved
    assert "seed=3" in about["overrides"]
    assert {"servesim", "commit", "wall_time_s", "notes", "warnings"} <= set(about)
    assert len(requests) == summary["requests"] == 5
    assert not (directory / "steps.parquet").exists()


def test_requests_and_steps_agree_with_the_summary(capsys, tmp_path):
    run(capsys, *SMALL, "output.steps=true")
    directory = run_directory(tmp_path)
    summary = json.loads((directory / "summary.json").read_text())
    requests = pd.read_parquet(directory / "requests.parquet")
    steps = pd.read_parquet(directory / "steps.parquet")
    assert requests["ttft_s"].mean() == pytest.approx(summary["ttft_mean_s"])
    assert requests["e2e_s"].max() <= summary["duration_s"]
    assert len(steps) == summary["steps"]
    tokens = steps["prefill_tokens"].sum() + steps["decode_tokens"].sum()
    assert tokens == summary["prompt_tokens"] + summary["output_tokens"] - len(requests)


def test_json_output_is_the_summary_and_nothing_else(capsys, tmp_path):
    code, printed = run(capsys, *SMALL, "output.format=json")
    assert code == 0
    row = json.loads(printed.out)
    assert row == json.loads((run_directory(tmp_path) / "summary.json").read_text())
    assert row["finished"] == 5


def test_no_files_are_written_where_none_are_wanted(capsys, tmp_path):
    run(capsys, *SMALL, "output.files=false")
    assert not list(tmp_path.rglob("summary.json"))


def test_the_same_seed_gives_the_same_summary_and_another_one_does_not(capsys):
    loads = ("workload=azure_conv_like", "workload.num_requests=30", "cost=roofline")
    rows = []
    for seed in (1, 1, 2):
        _, printed = run(capsys, *loads, f"seed={seed}", "output.format=json", "output.files=false")
        rows.append(json.loads(printed.out))
    assert rows[0] == rows[1]
    assert rows[0]["ttft_mean_s"] != rows[2]["ttft_mean_s"]


def test_a_progress_bar_shows_simulated_time_requests_and_speed(capsys):
    code, printed = run(
        capsys,
        "workload=azure_conv_like",
        "workload.num_requests=40",
        "cost=roofline",
        "output.progress=always",
    )
    assert code == 0
    assert "s simulated" in printed.err
    assert "/40" in printed.err
    assert "simulated" not in printed.out


def test_a_sweep_writes_a_row_per_run_and_prints_them(capsys, tmp_path):
    code, printed = run(capsys, "-m", *SMALL, "policies/order=fcfs,priority", "seed=1,2")
    assert code == 0
    (file,) = (tmp_path / "multirun").glob("*/*/rows.csv")
    rows = pd.read_csv(file)
    assert list(zip(rows["order"], rows["seed"], strict=True)) == [
        ("fcfs", 1),
        ("fcfs", 2),
        ("priority", 1),
        ("priority", 2),
    ]
    assert "4 runs" in printed.out
    assert rows["ttft_p99_s"].notna().all()


def test_the_sweep_flag_may_come_last(capsys, tmp_path):
    code, _ = run(capsys, *SMALL, "seed=1,2", "-m")
    assert code == 0
    assert list((tmp_path / "multirun").glob("*/*/rows.csv"))


def test_a_sweep_with_a_bad_run_keeps_the_others_and_fails(capsys, tmp_path):
    code, printed = run(capsys, "-m", *SMALL, "kv.num_gpu_blocks=1,100")
    assert code == 2
    (file,) = (tmp_path / "multirun").glob("*/*/rows.csv")
    assert len(pd.read_csv(file)) == 1
    assert "error: run 0: kv.num_gpu_blocks=1: must be 2 or more" in printed.err


def test_a_sweep_on_all_cores_gives_the_same_rows(capsys, tmp_path):
    sweep = ("-m", *SMALL, "seed=1,2")
    run(capsys, *sweep, "hydra.sweep.dir=one")
    run(capsys, *sweep, "hydra.sweep.dir=all", "hydra/launcher=joblib")
    one, together = (pd.read_csv(tmp_path / d / "rows.csv") for d in ("one", "all"))
    together = together.drop(columns="hydra/launcher", errors="ignore")
    pd.testing.assert_frame_equal(one, together)


def test_help_shows_commands_groups_and_settings(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for words in ("policies/order: fcfs, priority", "servesim -m", "max_num_seqs", "rate_rps"):
        assert words in text
    assert "gpu_memory_utilization: null" in text
    assert "goodput: {ttft_s: 2.0, tpot_s: 0.1}" in text
    assert "until_s: null" in text


def test_help_is_short_and_leaves_fitted_data_out(capsys):
    for words in ((), ("workload=trace",), ("workload=shared_prefix", "cost=roofline")):
        assert main(["--help", *words]) == 0
        text = capsys.readouterr().out
        assert len(text.splitlines()) < 120
        assert "_target_" not in text
    main(["--help"])
    text = capsys.readouterr().out
    assert "coefficients: …" in text
    assert "prompt: …" in text
    assert "\ncost=kernels/NAME: " in text
    assert "h100_sxm_llama" not in text


def test_help_shows_the_settings_of_other_choices_and_names_a_wrong_one(capsys):
    main(["workload=trace", "-h"])
    assert "arrival: ???" in capsys.readouterr().out
    assert main(["--help", "workload=trac"]) == 2
    assert "did you mean 'trace'?" in capsys.readouterr().err


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("servesim ")


def test_a_rejected_request_is_counted_shown_and_does_not_stop_the_run(capsys):
    code, printed = run(capsys, *SMALL, "max_model_len=20")
    assert code == 0
    assert "5 of 5 requests rejected" in printed.out
    assert "max_model_len 20" in printed.out


def test_a_cut_run_shows_what_is_unfinished(capsys):
    code, printed = run(capsys, *SMALL, "until_s=0.02")
    assert code == 0
    assert "requests unfinished" in printed.out
