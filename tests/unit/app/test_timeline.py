"""timeline.json: what it shows is what the records say."""

import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim.__main__ import main
from servesim.app.timeline import events, write_timeline

SMALL = ("workload=fixed", "workload.num_requests=5", "cost=roofline")
GRID_US = 1 / 8
PHASES = ("queued", "prefill", "decode")


def slices(found, pid):
    """(name, start, end, tid, args) of a process, microseconds."""
    return [
        (e["name"], e["ts"], e["ts"] + e["dur"], e["tid"], e["args"])
        for e in found
        if e["ph"] == "X" and e["pid"] == pid
    ]


def spans(found, pid, tid):
    return [(name, start, end) for name, start, end, t, _ in slices(found, pid) if t == tid]


def counter(found, name):
    return [(e["ts"], *e["args"].values()) for e in found if e["ph"] == "C" and e["name"] == name]


def of_kind(found, ph, name):
    return [e for e in found if e["ph"] == ph and e["name"] == name]


def test_two_requests_and_an_idle_engine_by_hand():
    # steps of 10 ms. 0: prefill of a; 10: its last token while b is prefilled; then nothing
    # until c, whose prompt needs two steps of 8 tokens
    load = [
        request(0, 0, prompt=4, output=2),
        request(1, 5 * MS, prompt=4, output=1),
        request(2, 50 * MS, prompt=9, output=2),
    ]
    record = serve(load, engine(max_tokens=8), keep_steps=True)
    found = list(events(record))
    assert spans(found, 1, 1) == [
        ("prefill", 0, 10_000),
        ("mixed", 10_000, 20_000),
        ("prefill", 50_000, 60_000),
        ("decode", 60_000, 70_000),  # one token is left of the prompt
        ("decode", 70_000, 80_000),
    ]
    assert spans(found, 2, 3) == [
        ("request 0", 0, 20_000),
        ("prefill", 0, 10_000),
        ("decode", 10_000, 20_000),
        ("request 2", 50_000, 80_000),
        ("prefill", 50_000, 70_000),
        ("decode", 70_000, 80_000),
    ]
    assert spans(found, 2, 4) == [
        ("request 1", 5_000, 20_000),
        ("queued", 5_000, 10_000),
        ("prefill", 10_000, 20_000),
    ]
    assert counter(found, "requests") == [
        (0, 1, 0),
        (10_000, 2, 0),
        (20_000, 0, 0),
        (50_000, 1, 0),
        (80_000, 0, 0),
    ]
    assert counter(found, "tokens per step") == [
        (0, 4, 0),
        (10_000, 4, 1),
        (20_000, 0, 0),
        (50_000, 8, 0),
        (60_000, 0, 1),
        (80_000, 0, 0),
    ]


def test_a_preemption_is_an_instant_of_the_step_that_began_with_it():
    load = [request(0, prompt=8, output=9), request(1, prompt=8, output=9)]
    scheduler = engine(blocks=7, max_tokens=16, max_seqs=2, max_model_len=24)
    record = serve(load, scheduler, keep_steps=True)
    (instant,) = of_kind(list(events(record)), "i", "preempted")
    (step,) = [step for step in record.steps if step.num_preempted]
    assert (instant["ts"], instant["s"]) == (step.start_ps / 10**6, "t")
    assert instant["args"] == {"num_preempted": 1}


def test_a_rejected_request_is_an_instant_with_its_reason():
    load = [request(0, 7 * MS, prompt=90, output=20), request(1, 8 * MS)]
    found = list(events(serve(load, engine(max_model_len=100), keep_steps=True)))
    (instant,) = of_kind(found, "i", "rejected")
    assert instant["ts"] == 7_000
    assert instant["args"]["rid"] == 0
    assert "max_model_len 100" in instant["args"]["reason"]
    assert [e["args"] for e in found if e["tid"] == instant["tid"] and e["ph"] == "M"] == [
        {"name": "requests"},
        {"name": "rejected"},
    ]


def test_a_cut_run_shows_requests_until_its_end_and_no_idle_engine():
    load = [request(0, output=50), request(1, 3 * MS, output=50), request(2, 90 * MS)]
    record = serve(load, engine(max_seqs=1), until_ps=45 * MS, keep_steps=True)
    found = list(events(record))
    assert spans(found, 2, 3)[-1] == ("decode", 10_000, 45_000)
    assert spans(found, 2, 4) == [("request 1", 3_000, 45_000), ("queued", 3_000, 45_000)]
    assert len(of_kind(found, "X", "request 2")) == 0
    assert counter(found, "requests") == [(0, 1, 0), (10_000, 1, 1)]


@pytest.fixture(scope="module")
def busy():
    """Arrivals 3 ms apart, short memory: queueing, preemptions, idle lanes."""
    load = [
        request(i, i * 3 * MS + i * 77, prompt=5 + i % 7, output=1 + i % 15) for i in range(120)
    ]
    timer = LinearTimer(10 * MS + 333, 123_457)  # off every grid
    return serve(load, engine(blocks=12, max_model_len=32), timer, keep_steps=True)


def test_every_event_has_what_the_format_requires(busy, tmp_path):
    path = tmp_path / "timeline.json"
    write_timeline(path, busy)
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms"
    assert content["traceEvents"] == list(events(busy))
    for event in content["traceEvents"]:
        assert {"name", "ph", "ts", "pid", "tid"} <= set(event)
        assert event["ph"] in "MXCi"
        assert ("dur" in event) == (event["ph"] == "X")
        assert ("s" in event) == (event["ph"] == "i")
    shown = {(e["pid"], e["tid"]) for e in content["traceEvents"] if e["ph"] == "X"}
    assert shown == {
        (e["pid"], e["tid"]) for e in of_kind(content["traceEvents"], "M", "thread_name")
    }


def test_times_are_on_a_grid_that_stays_exact_when_a_viewer_goes_to_nanoseconds(busy):
    for event in events(busy):
        for us in (event["ts"], event.get("dur", 0.0)):
            assert (us * 8).is_integer()
            assert (us * 1000).is_integer()


def test_steps_are_those_of_the_record_and_meet(busy):
    found = slices(list(events(busy)), 1)
    assert len(found) == len(busy.steps)
    for (_, start, end, _, args), step in zip(found, busy.steps, strict=True):
        assert start == pytest.approx(step.start_ps / 10**6, abs=GRID_US / 2)
        assert end == pytest.approx((step.start_ps + step.duration_ps) / 10**6, abs=GRID_US / 2)
        assert args == {name: getattr(step, name) for name in args}
    for (before, after), (step, following) in zip(
        pairwise(found), pairwise(busy.steps), strict=True
    ):
        follows_at_once = step.start_ps + step.duration_ps == following.start_ps
        assert (before[2] == after[1]) == follows_at_once
    tokens = sum(args["prefill_tokens"] + args["decode_tokens"] for *_, args in found)
    assert tokens == busy.totals.tokens


def test_preemptions_add_up(busy):
    shown = [e["args"]["num_preempted"] for e in of_kind(list(events(busy)), "i", "preempted")]
    assert sum(shown) == sum(r.preemptions for r in busy.requests) > 0


def test_counters_hold_what_each_step_says(busy):
    found = list(events(busy))
    columns = {
        "requests": ("num_seqs", "num_waiting"),
        "tokens per step": ("prefill_tokens", "decode_tokens"),
        "KV blocks": ("kv_blocks_used",),
    }
    for name, fields in columns.items():
        shown = counter(found, name)
        assert [s[0] for s in shown] == sorted({s[0] for s in shown})
        assert all(a[1:] != b[1:] for a, b in pairwise(shown))
        assert not any(shown[-1][1:])
        left = list(shown)
        for start, step in ((s[1], r) for s, r in zip(slices(found, 1), busy.steps, strict=True)):
            while len(left) > 1 and left[1][0] <= start:
                left.pop(0)
            assert left[0][1:] == tuple(getattr(step, field) for field in fields)


def check_requests(record):
    """Lanes: one request at a time; phases: the times of the record, end to end."""
    found = slices(list(events(record)), 2)
    lanes, phases = defaultdict(list), defaultdict(dict)
    for name, start, end, tid, args in found:
        if name.startswith("request "):
            lanes[tid].append((start, end))
            phases[args["rid"]]["whole"] = (start, end, tid)
        else:
            phases[args["rid"]][name] = (start, end, tid)
    for taken in lanes.values():
        assert all(a[1] <= b[0] for a, b in pairwise(taken))
    assert set(phases) == {r.rid for r in record.requests if r.queued_ps is not None}
    for r in record.requests:
        marks = [t for t in (r.queued_ps, r.scheduled_ps, r.first_token_ps) if t is not None]
        if not marks:
            continue
        marks.append(r.last_token_ps if r.status == "finished" else record.end_ps)
        whole = phases[r.rid].pop("whole")
        expected = {
            name: pytest.approx((start / 10**6, end / 10**6), abs=GRID_US / 2)
            for name, (start, end) in zip(PHASES, pairwise(marks), strict=False)
            if start < end
        }
        assert {name: span[:2] for name, span in phases[r.rid].items()} == expected
        ordered = sorted(phases[r.rid].values())
        assert all(span[2] == whole[2] for span in ordered)
        assert (ordered[0][0], ordered[-1][1]) == whole[:2]
        assert all(a[1] == b[0] for a, b in pairwise(ordered))
    return lanes


def test_requests_are_those_of_the_record_and_lanes_are_few(busy):
    lanes = check_requests(busy)
    changes = Counter()
    for r in busy.requests:
        changes[r.queued_ps] += 1
        changes[r.last_token_ps] -= 1
    inside = most = 0
    for now in sorted(changes):
        inside += changes[now]
        most = max(most, inside)
    assert len(lanes) == most


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40 * MS), st.integers(1, 30), st.integers(1, 12)),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 200 * MS),
    st.integers(1, 3),
)
def test_any_run_cut_anywhere(load, until_ps, max_seqs):
    rows = enumerate(sorted(load))
    requests = [request(i, arrival, prompt, output) for i, (arrival, prompt, output) in rows]
    scheduler = engine(blocks=8, max_seqs=max_seqs, max_model_len=40)
    record = serve(requests, scheduler, keep_steps=True, until_ps=until_ps + 1)
    check_requests(record)
    for _, start, end, _, _ in slices(list(events(record)), 1):
        assert 0 <= start < end <= record.end_ps / 10**6 + GRID_US / 2


def test_skipping_changes_no_byte(tmp_path):
    load = [request(i, i * 4 * MS, 5 + i % 7, 1 + i % 9) for i in range(40)]
    written = []
    for stepwise in (False, True):
        record = serve(load, engine(blocks=20, stepwise=stepwise), keep_steps=True)
        write_timeline(tmp_path / "t.json", record)
        written.append((tmp_path / "t.json").read_bytes())
    assert written[0] == written[1]


def test_the_command_line_writes_it_and_says_how_large_it_is(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "output.timeline=true", "hydra.run.dir=here"]) == 0
    path = tmp_path / "here" / "timeline.json"
    size_mb = path.stat().st_size / 1e6
    assert f"timeline: here/timeline.json ({size_mb:.1f} MB)" in capsys.readouterr().out
    found = json.loads(path.read_text())["traceEvents"]
    summary = json.loads((path.parent / "summary.json").read_text())
    assert len(slices(found, 1)) == summary["steps"]
    assert not (path.parent / "steps.parquet").exists()
    assert main([*SMALL, "hydra.run.dir=there"]) == 0
    assert not (tmp_path / "there" / "timeline.json").exists()


def test_a_timeline_without_files_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "output.timeline=true", "output.files=false"]) == 2
    error = capsys.readouterr().err
    assert error == (
        "error: output.timeline=True: is a file, and output.files=false wants none; "
        "nearest: output.files=true\n"
    )
