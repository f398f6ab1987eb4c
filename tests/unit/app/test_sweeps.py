"""Sweeps: rows of this sweep and no other, a line per distinct mistake, JSON."""

import json
import math

import pandas as pd
import pytest

from servesim.__main__ import main

SMALL = ("workload=fixed", "workload.num_requests=5", "cost=roofline")
HERE = "hydra.sweep.dir=sweep"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sweep(capsys, *arguments):
    code = main(["-m", *SMALL, HERE, *arguments])
    return code, capsys.readouterr()


def rows(tmp_path):
    return pd.read_csv(tmp_path / "sweep" / "rows.csv")


def files_of(tmp_path):
    files = [p for p in (tmp_path / "sweep").rglob("*") if p.is_file()]
    # Hydra notes there which sweep was asked for last, refused or not
    return {p: p.read_bytes() for p in files if p.name != "multirun.yaml"}


def test_a_directory_used_again_holds_the_rows_of_the_new_sweep_only(capsys, tmp_path):
    sweep(capsys, "seed=1,2,3", "output.steps=true", "output.timeline=true")
    code, printed = sweep(capsys, "seed=7,8")
    assert code == 0
    assert list(rows(tmp_path)["seed"]) == [7, 8]
    assert "2 runs" in printed.out
    assert not (tmp_path / "sweep" / "2").exists()
    assert not list(tmp_path.rglob("steps.parquet"))
    assert not list(tmp_path.rglob("timeline.json"))


def test_an_earlier_failure_does_not_fail_a_good_sweep(capsys, tmp_path):
    assert sweep(capsys, "kv.num_gpu_blocks=1,100")[0] == 2
    code, printed = sweep(capsys, "seed=1,2")
    assert code == 0
    assert printed.err == ""
    assert len(rows(tmp_path)) == 2


def test_a_sweep_that_fails_leaves_no_earlier_rows(capsys, tmp_path):
    sweep(capsys, "seed=1,2")
    assert sweep(capsys, "until_s=-1,-2")[0] == 2
    assert not (tmp_path / "sweep" / "rows.csv").exists()


def test_a_sweep_that_is_refused_costs_no_earlier_results(capsys, tmp_path):
    sweep(capsys, "seed=1,2")
    before = files_of(tmp_path)
    code, printed = sweep(capsys, "seed=3", "policies/order=fcfs,fcsf")
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert files_of(tmp_path) == before


def test_what_a_sweep_did_not_write_stays(capsys, tmp_path):
    main([*SMALL, "hydra.run.dir=sweep/single"])  # a run by itself is not of a sweep
    own = [tmp_path / "sweep" / name for name in ("0/notes.txt", "9/run.json", "8/data.csv")]
    for path in own:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    sweep(capsys, "seed=1,2")
    sweep(capsys, "seed=3")
    assert all(path.read_text() == "mine" for path in own)
    assert (tmp_path / "sweep" / "single" / "summary.json").is_file()
    assert list(rows(tmp_path)["seed"]) == [3]


def test_a_mistake_that_all_runs_share_is_one_line(capsys):
    code, printed = sweep(capsys, "seed=1,2,3", "until_s=-1")
    assert code == 2
    assert printed.err == "error: 3 of 3 runs failed: until_s=-1: must be above 0\n"


def test_mistakes_of_some_runs_are_a_line_each_with_their_runs(capsys):
    code, printed = sweep(capsys, "kv.num_gpu_blocks=1,100,0", "seed=1,2")
    assert code == 2
    assert printed.err.splitlines() == [
        "error: 2 of 6 runs failed (0, 1): kv.num_gpu_blocks=1: must be 2 or more",
        "error: 2 of 6 runs failed (4, 5): kv.num_gpu_blocks=0: must be 2 or more",
    ]


def test_without_files_there_are_still_rows(capsys, tmp_path):
    code, printed = sweep(capsys, "seed=1,2", "output.files=false")
    assert code == 0
    assert len(rows(tmp_path)) == 2
    assert "2 runs" in printed.out
    assert not list(tmp_path.rglob("requests.parquet"))


def test_json_of_a_sweep_is_the_list_of_rows_and_nothing_else(capsys):
    code, printed = sweep(capsys, "seed=1,2", "output.format=json")
    assert code == 0
    listed = json.loads(printed.out)
    assert [(row["run"], row["seed"], row["finished"]) for row in listed] == [
        ("0", 1, 5),
        ("1", 2, 5),
    ]


def test_json_of_a_sweep_without_a_good_run_is_an_empty_list(capsys):
    code, printed = sweep(capsys, "seed=1,2", "until_s=-1", "output.format=json")
    assert code == 2
    assert json.loads(printed.out) == []


def test_an_infinite_rate_is_read_back_as_infinite(capsys, tmp_path):
    sweep(capsys, "workload.rate_rps=2,inf")
    assert list(rows(tmp_path)["rate_rps"]) == [2.0, math.inf]
    text = (tmp_path / "sweep" / "1" / "summary.json").read_text()
    strict = json.loads(text, parse_constant=pytest.fail)
    assert float(strict["rate_rps"]) == math.inf


def test_the_table_shows_what_differs_also_where_it_is_a_group(capsys):
    _, printed = sweep(capsys, "model=llama3.1_8b,qwen2.5_7b", "seed=1,2")
    table = printed.out[printed.out.index("TTFT p50") :]
    assert "qwen2.5_7b" in table
    assert "seed" in table


def test_a_directory_that_cannot_be_cleared_is_named(capsys, tmp_path):
    sweep(capsys, "seed=1,2")
    (tmp_path / "sweep" / "rows.csv").unlink()
    (tmp_path / "sweep" / "rows.csv").mkdir()
    code, printed = sweep(capsys, "seed=1,2")
    assert code == 2
    assert "cannot write to output directory" in printed.err
    assert len(printed.err.splitlines()) == 1


def test_an_interrupted_sweep_keeps_what_is_finished(capsys, tmp_path, monkeypatch):
    from servesim.app import simulate

    run_job, done = simulate.run_job, []

    def interrupted_at_the_second(cfg):
        if done:
            raise KeyboardInterrupt
        done.append(cfg)
        return run_job(cfg)

    monkeypatch.setattr(simulate, "run_job", interrupted_at_the_second)
    sweep = ("-m", "workload=fixed", "workload.num_requests=3", "seed=1,2,3")
    finished = simulate.carry_out([*sweep, "hydra.sweep.dir=cut"])
    assert finished.code == 130
    assert "interrupted; finished runs are kept: cut/rows.csv" in capsys.readouterr().err
    assert (tmp_path / "cut" / "rows.csv").read_text().count("\n") == 2


def test_runs_started_in_the_same_second_have_folders_of_their_own(capsys, tmp_path):
    from servesim.app import simulate

    for _ in range(2):
        assert simulate.main(["workload=fixed", "workload.num_requests=2"]) == 0
    assert len(list((tmp_path / "outputs").glob("*/*/summary.json"))) == 2
