"""Recorded runs of transformers' own scheduler agree step by step, and a wrong number is found."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from validation.conformance.hf_live import main as live
from validation.conformance.hf_replay import main, replay
from validation.conformance.hf_trace import EOS_TOKEN, Row, Scripted, read
from validation.conformance.hf_workloads import random_workload

GOLDEN = Path(__file__).parents[3] / "validation/conformance/traces/hf.json.gz"


def test_recorded_runs_agree(capsys):
    assert main([str(GOLDEN)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{GOLDEN}: 120 runs, 15926 steps, 0 mismatches; 244 preemptions, 580 prefix hits, "
        "443 evictions of all cached pages, 201 steps with overtaking, 8537 steps skipped"
    ]


def test_they_are_small_and_cover_both_schedulers():
    assert GOLDEN.stat().st_size < 300 * 1024
    configs = [trace.config for trace in read(GOLDEN)]
    assert {config.scheduler_type for config in configs} == {"fifo", "prefill_first"}
    assert {config.allow_block_sharing for config in configs} == {True, False}


def test_they_are_the_random_loads_of_their_seeds():
    for trace in read(GOLDEN)[::10]:
        seed = int(trace.name.removeprefix("seed "))
        assert (trace.config, trace.requests) == random_workload(seed)


@pytest.mark.parametrize("field", [f for f in Row._fields if f != "step"])
def test_a_difference_in_any_field_is_found(field):
    trace = read(GOLDEN)[0]
    row = trace.rows[5]
    value = getattr(row, field)
    extra = (77, 1, 0) if field == "batch" else 77
    other = value + 1 if isinstance(value, int) else (*value, extra)
    rows = (*trace.rows[:5], row._replace(**{field: other}), *trace.rows[6:])
    result = replay(replace(trace, rows=rows))
    assert result.tally.mismatches >= 1
    assert result.first_difference.startswith(f"step {row.step}: {field} is ")


def test_skipping_has_differences_of_its_own():
    trace = next(t for t in read(GOLDEN) if replay(t).tally.skipped > 50)
    rows = tuple(row._replace(free=row.free - 1) for row in trace.rows)
    result = replay(replace(trace, rows=rows))
    assert result.tally.mismatches > len(rows)  # each once when stepping, and the runs again


def test_tokens_are_equal_where_streams_are():
    a = Scripted(0, 4, 3, 3, ((0, 3), (10, 2)))
    b = Scripted(0, 3, 3, 4, ((0, 3), (11, 2)))
    first, second = a.tokens(0), b.tokens(1)
    assert first[:3] == second[:3]
    assert not set(first[3:]) & set(second)
    assert (len(first), len(second)) == (7, 6)
    assert second[-1] == EOS_TOKEN  # it ends before its cap
    assert EOS_TOKEN not in first


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no gzip", "is no file of recorded runs"),
        (gzip.compress(b"[]"), "is no file of recorded runs"),
        (gzip.compress(b"{}"), "lacks 'release'"),
        (gzip.compress(json.dumps({"release": "5.0.0"}).encode()), "transformers 5.0.0, not 5.23"),
    ],
    # gzip's header holds the time: as an id it would differ between the workers of one run.
    ids=["no gzip", "a list", "an empty object", "another release"],
)
def test_bad_files_exit_with_2_and_one_line(tmp_path, capsys, content, words):
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {path}: ")
    assert words in err
    assert err.count("\n") == 1


def test_no_file_and_unknown_options_exit_with_2(capsys):
    assert main([]) == 2
    for bad in ("seeds=3", "seeds=5:5", "seeds=a:b", "steps=4"):
        assert live([bad]) == 2
    assert capsys.readouterr().err.count("usage: ") == 5
