import math

import pytest

from servesim.content import TraceBlocks
from servesim.errors import SettingError
from servesim.units import PS_PER_S
from servesim.workload.readers.generic import Columns, GenericTrace

NAMES = Columns(arrival="t", prompt_tokens="in", output_tokens="out")
# Gaps of 1, 3 and 4 s: three intervals in 8 s, 0.375 requests/s.
ROWS = "t,in,out\n2,10,1\n3,20,2\n6,30,3\n10,40,4\n"


@pytest.fixture
def trace(tmp_path):
    def make(text=ROWS, **settings):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        given = {"path": str(path), "columns": NAMES, "unit": "s", "origin": "zero"} | settings
        return GenericTrace(**given)

    return make


def arrivals_s(load):
    return [r.arrival_ps / PS_PER_S for r in load.requests]


def test_rows_become_requests(trace):
    load = trace().load(0)
    assert [(r.rid, r.prompt_tokens, r.output_tokens, r.max_tokens) for r in load.requests] == [
        (0, 10, 1, 1),
        (1, 20, 2, 2),
        (2, 30, 3, 3),
        (3, 40, 4, 4),
    ]
    assert load.notes[0].startswith("4 of 4 rows of ")
    assert "0.375 requests/s" in load.notes[1]
    assert load.counts == {"trace_rows": 4}


def test_a_clock_from_the_start_of_the_trace_is_kept(trace):
    assert arrivals_s(trace().load(0)) == [2, 3, 6, 10]


def test_on_other_clocks_the_first_request_comes_at_zero(trace):
    assert arrivals_s(trace(origin="monotonic").load(0)) == [0, 1, 4, 8]
    epoch = "t,in,out\n1700000000,10,1\n1700000000.5,20,2\n"
    assert arrivals_s(trace(epoch, origin="epoch").load(0)) == [0, 0.5]


def test_offset_and_limit_take_rows_and_time_starts_at_the_last_row_left_out(trace):
    load = trace(offset=1, limit=2).load(0)
    assert [r.prompt_tokens for r in load.requests] == [20, 30]
    assert arrivals_s(load) == [1, 4]
    assert arrivals_s(trace(offset=1, limit=2, origin="monotonic").load(0)) == [0, 3]
    assert len(trace(limit=100).load(0).requests) == 4


@pytest.mark.parametrize("rate", [0.375, 0.75, 3.0, 1 / 3])
def test_a_rate_stretches_every_interval_by_one_factor(trace, rate):
    load = trace(rate_rps=rate).load(0)
    times = [r.arrival_ps for r in load.requests]
    wanted = [round(t * 0.375 / rate * 1e9) * 1000 for t in (2, 3, 6, 10)]
    assert times == wanted
    assert (len(times) - 1) / ((times[-1] - times[0]) / PS_PER_S) == pytest.approx(rate, rel=1e-9)
    assert "requests/s" in load.notes[1]


def test_a_rate_counts_the_rows_used_and_drops_none(trace):
    assert arrivals_s(trace(rate_rps=1.0, limit=2, origin="monotonic").load(0)) == [0, 1]


def test_an_infinite_rate_sends_all_at_once(trace):
    assert arrivals_s(trace(rate_rps=math.inf).load(0)) == [0, 0, 0, 0]


def test_what_cannot_be_stretched_is_refused(trace):
    with pytest.raises(SettingError, match="no interval to stretch"):
        trace("t,in,out\n5,1,1\n5,2,2\n", rate_rps=1.0).load(0)
    assert arrivals_s(trace("t,in,out\n5,1,1\n5,2,2\n").load(0)) == [5, 5]


def test_duplicates_are_counted_warned_of_and_kept(trace):
    load = trace("t,in,out\n1,5,5\n1,5,5\n1,5,6\n2,5,5\n2,5,5\n2,5,5\n").load(0)
    assert load.counts["duplicate_rows"] == 3
    assert len(load.requests) == 6
    assert load.warnings == ("3 rows repeat an earlier one (all are kept)",)


def test_rows_with_ids_of_their_own_are_no_duplicates(trace):
    named = Columns(arrival="t", prompt_tokens="in", output_tokens="out", id="id")
    load = trace("t,in,out,id\n1,5,5,a\n1,5,5,b\n", columns=named).load(0)
    assert "duplicate_rows" not in load.counts


def test_stretching_does_not_make_duplicates(trace):
    text = "t,in,out\n0,5,5\n0.000000001,5,5\n1000,5,5\n"
    assert "duplicate_rows" not in trace(text, rate_rps=1000.0).load(0).counts


def test_drawn_priorities_belong_to_rows_whatever_is_left_out(trace):
    text = "t,in,out\n" + "".join(f"{i},5,5\n" for i in range(100))
    every = [r.priority for r in trace(text, priorities={0: 0.5, 1: 0.5}).load(3).requests]
    part = trace(text, priorities={0: 0.5, 1: 0.5}, offset=40, limit=20).load(3)
    assert [r.priority for r in part.requests] == every[40:60]
    assert set(every) == {0, 1}


def test_a_cap_for_all(trace):
    assert {r.max_tokens for r in trace(max_tokens=2).load(0).requests} == {2}


def test_optional_columns(trace):
    every = Columns(
        arrival="t",
        prompt_tokens="in",
        output_tokens="out",
        max_tokens="cap",
        priority="prio",
        id="id",
        tenant="who",
        block_ids="blocks",
    )
    text = 't,in,out,cap,prio,id,who,blocks\n1,9,5,7,-2,x1,ann,"[4, 8]"\n'
    (request,) = trace(text, columns=every, block_size=4).load(0).requests
    assert (request.max_tokens, request.priority) == (7, -2)
    assert (request.name, request.tenant) == ("x1", "ann")
    assert request.content == TraceBlocks((0, 1), 4)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"max_tokens": 5}, "max_tokens"),
        ({"priorities": {0: 1.0}}, "priorities"),
    ],
)
def test_a_setting_that_is_also_a_column_is_refused(trace, settings, setting):
    every = Columns(
        arrival="t", prompt_tokens="in", output_tokens="out", max_tokens="in", priority="out"
    )
    with pytest.raises(SettingError, match=f"{setting}=.*has a column") as caught:
        trace(columns=every, **settings).load(0)
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"offset": 4}, "offset"),
        ({"offset": -1}, "offset"),
        ({"limit": 0}, "limit"),
        ({"rate_rps": 0}, "rate_rps"),
        ({"max_gap_s": 0}, "max_gap_s"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_settings_are_checked(trace, settings, setting):
    with pytest.raises(SettingError) as caught:
        trace(**settings).load(0)
    assert caught.value.setting == setting
