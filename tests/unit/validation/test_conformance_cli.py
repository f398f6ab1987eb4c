"""`python -m validation.conformance`: what it prints and what it exits with."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from validation.conformance.__main__ import main

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "validation/conformance/traces/golden_vllm_0.33.json"


def golden():
    return json.loads(GOLDEN.read_text())


def write(path, traces):
    text = json.dumps(traces)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def test_agreement_exits_with_0_and_counts_steps_over_all_files(capsys):
    assert main([str(GOLDEN), str(GOLDEN)]) == 0
    out, err = capsys.readouterr()
    line = f"{GOLDEN}: 9 traces, 57 steps, 0 mismatches"
    assert out.splitlines() == [line, line, "114 steps, 0 mismatches"]
    assert err == ""


def test_what_was_left_out_and_what_was_replayed_by_another_profile_is_said(tmp_path, capsys):
    traces = golden()
    traces[0]["config"]["policy"] = "lpm"
    traces[1]["release"] = "0.40"
    assert main([write(tmp_path / "t.json", traces)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  release 0.40 by profile 0.33, not exact",
        "  not compared: A chunked mixing: policy lpm",
        "52 steps, 0 mismatches",
    ]


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "validation.conformance", str(GOLDEN)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "0 mismatches" in done.stdout


def test_compressed_files_are_read(tmp_path, capsys):
    assert main([write(tmp_path / "t.json.gz", golden())]) == 0
    assert "9 traces, 57 steps, 0 mismatches" in capsys.readouterr().out


def test_a_difference_exits_with_1_and_names_trace_and_step(tmp_path, capsys):
    traces = golden()
    traces[0]["rows"][2]["free_after_update"] += 1
    assert main([str(GOLDEN), write(tmp_path / "t.json", traces)]) == 1
    out = capsys.readouterr().out
    assert "9 traces, 57 steps, 1 mismatches" in out
    assert "  A chunked mixing: step 2: free_after_update is 2, recorded 3" in out


def test_nothing_to_compare_exits_with_2(tmp_path, capsys):
    traces = golden()
    for trace in traces:
        trace["config"]["policy"] = "lpm"
    assert main([write(tmp_path / "t.json", traces)]) == 2
    assert capsys.readouterr().err == "error: nothing was compared\n"


def test_no_file_exits_with_2(capsys):
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def lacking(*path):
    traces = golden()
    where = traces[0]
    for key in path[:-1]:
        where = where[key]
    del where[path[-1]]
    return json.dumps(traces).encode()


def changed(value, *path):
    traces = golden()
    where = traces[0]
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    return json.dumps(traces).encode()


def damaged():
    data = bytearray(gzip.compress(GOLDEN.read_bytes()))
    for i in range(100, 200):
        data[i] ^= 0xFF
    return bytes(data)


BAD = {
    "not JSON": ("t.json", b"step,sched\n0,a", "not a JSON trace file"),
    "not text": ("t.json", b"\xff\xfe\x00", "not a JSON trace file"),
    "truncated gzip": ("t.json.gz", gzip.compress(GOLDEN.read_bytes())[:500], "not a JSON trace"),
    "damaged gzip": ("t.json.gz", damaged(), "not a JSON trace file"),
    "not gzip": ("t.json.gz", GOLDEN.read_bytes(), "not a JSON trace file"),
    "wrong suffix": ("t.csv", b"[]", "expected a name that ends in .json or .json.gz"),
    "empty list": ("t.json", b"[]", "expected a list of at least one trace"),
    "an object": ("t.json", b"{}", "expected a list of at least one trace"),
    "a list of numbers": ("t.json", b"[1]", "trace 0 '' is malformed"),
    "no config": ("t.json", lacking("config"), "trace 0 'A chunked mixing' lacks 'config'"),
    "no block size": ("t.json", lacking("config", "bs"), "lacks 'config.bs'"),
    "no step": ("t.json", lacking("rows", 1, "step"), "lacks 'step'"),
    "no prompt": ("t.json", lacking("requests", 0, "prompt"), "lacks 'prompt'"),
    "no rows": ("t.json", changed([], "rows"), "no rows"),
    "rows out of order": ("t.json", changed(9, "rows", 1, "step"), "ascending"),
    "a row that is a list": ("t.json", changed([], "rows", 1), "malformed"),
    "sched that is a list": ("t.json", changed([], "rows", 1, "sched"), "sched must map"),
    "arrival as text": ("t.json", changed("0", "requests", 0, "arrive"), "whole numbers"),
    "given up too early": ("t.json", changed(-1, "requests", 0, "abort_step"), "abort_step must"),
    "a bad release": (
        "t.json",
        changed("newest", "release"),
        "release='newest': must be a release",
    ),
    "an id twice": ("t.json", changed("b", "requests", 0, "id"), "two requests have one id"),
    "a bad setting": (
        "t.json",
        changed(0, "config", "max_seqs"),
        "t.json: trace 'A chunked mixing': max_num_seqs=0",
    ),
}


@pytest.mark.parametrize(("name", "content", "words"), BAD.values(), ids=BAD.keys())
def test_bad_files_exit_with_2_and_one_line(tmp_path, capsys, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    assert main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_missing_files_and_folders_exit_with_2(tmp_path, capsys):
    assert main([str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'none.json'}: no such file\n"
    folder = tmp_path / "folder.json"
    folder.mkdir()
    assert main([str(folder)]) == 2
    assert capsys.readouterr().err == f"error: {folder}: is a directory, not a trace file\n"
