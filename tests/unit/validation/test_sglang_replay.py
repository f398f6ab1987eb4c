"""The SGLang profile beside recorded steps of the real scheduler and radix cache."""

from dataclasses import replace

import pytest

from validation.conformance.sglang_cases import random_case
from validation.conformance.sglang_replay import RECORDED, main, replay, taken
from validation.conformance.sglang_trace import Trace, difference, read_traces, write_traces


@pytest.fixture(scope="module")
def recorded():
    return read_traces(RECORDED)


def test_every_step_agrees(recorded):
    told = {trace.case.name: difference(trace, replay(trace.case)) for trace in recorded}
    assert {name: found for name, found in told.items() if found} == {}


def test_the_recorded_traces_cover_what_is_hard(recorded):
    configs = [trace.case.config for trace in recorded]
    rows = [row for trace in recorded for row in trace.rows]
    assert {c.schedule_policy for c in configs} == {"fcfs", "lof", "lpm", "dfs-weight", "hrrn"}
    assert {c.page_size for c in configs} == {1, 2, 4}
    assert {c.radix_eviction_policy for c in configs} == {"lru", "lfu", "fifo", "filo", "slru"}
    assert sum(len(row.retracted) for row in rows) > 100
    assert max(len(row.waiting) for row in rows) > 128
    assert any(c.enable_mixed_chunk for c in configs)
    assert any(c.enable_priority_scheduling for c in configs)
    assert any(c.disable_radix_cache for c in configs)
    assert {c.disable_overlap_schedule for c in configs} == {True, False}


def test_a_difference_is_told(recorded, tmp_path, capsys):
    trace = recorded[0]
    wrong = replace(trace.rows[1], free=trace.rows[1].free + 1)
    write_traces(
        tmp_path / "wrong.json.gz",
        [replace(trace, rows=(trace.rows[0], wrong, *trace.rows[2:])), recorded[1]],
    )
    assert main([str(tmp_path / "wrong.json.gz")]) == 1
    printed = capsys.readouterr().out
    assert "2 cases" in printed
    assert "1 differ" in printed
    assert f"step {wrong.step}: free {wrong.free} ≠ {wrong.free - 1}" in printed
    assert difference(replace(trace, final_free=-1), trace).startswith("final_free")
    assert difference(replace(trace, rows=trace.rows[:-1]), trace) == (
        f"{len(trace.rows) - 1} rows ≠ {len(trace.rows)}"
    )


def test_what_is_written_is_read(recorded, tmp_path):
    write_traces(tmp_path / "again.json.gz", recorded[:3])
    assert read_traces(tmp_path / "again.json.gz") == recorded[:3]


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}"])
def test_what_is_no_trace_file_is_refused(content, tmp_path, capsys):
    path = tmp_path / "no.json.gz"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_cases_are_a_function_of_their_seed():
    case = random_case(24)
    assert case == random_case(24)
    assert taken(case) == case.requests
    assert isinstance(replay(random_case(1)), Trace)
