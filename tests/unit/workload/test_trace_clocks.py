"""Two clocks in one column, dates that are none: refused with file, line and reason."""

import json

import pytest

from servesim.errors import TraceError
from servesim.workload.readers.generic import Columns, GenericTrace

NAMES = Columns(arrival="t", prompt_tokens="in", output_tokens="out")


def read(path, content, **settings):
    if isinstance(content, str):
        path.write_text(content)
    else:
        path.write_bytes(content)
    given = {"path": str(path), "columns": NAMES, "unit": "s", "origin": "zero"} | settings
    return GenericTrace(**given).load(0)


def refusal(path, content, **settings):
    with pytest.raises(TraceError) as caught:
        read(path, content, **settings)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# A file of send times on one clock with a row on another (inference-sim#1606 mixed epoch µs with
# relative times).
EPOCH_US = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("times", "line", "settings", "reason"),
    [
        (
            [EPOCH_US, EPOCH_US + 5, 12],
            4,
            {"unit": "us", "origin": "epoch"},
            "is no time between the years 2000 and 2100 for unit=us, origin=epoch",
        ),
        ([0, 7, EPOCH_US], 4, {"unit": "us", "origin": "zero"}, "is no time of less than 30 years"),
        ([5e5, 1.7e9], 3, {"origin": "monotonic"}, "another clock, unit or origin"),
        ([EPOCH_US], 2, {"unit": "s", "origin": "epoch"}, "another clock, unit or origin"),
        ([1.7e9], 2, {"unit": "ms", "origin": "epoch"}, "another clock, unit or origin"),
        ([5.0], 2, {"origin": "epoch"}, "another clock, unit or origin"),
        ([1, 2, 90_000], 4, {}, "jumps by 89998 s, more than max_gap_s=86400: two clocks"),
        ([1.7e9, 3.0e9], 3, {"origin": "epoch"}, "two clocks or units in one column"),
    ],
)
def test_mixed_clocks(tmp_path, times, line, settings, reason):
    rows = "".join(f"{t},5,5\n" for t in times)
    error = refusal(tmp_path / "a.csv", "t,in,out\n" + rows, **settings)
    assert error.line == line
    assert reason in str(error)


def test_a_lull_is_read_where_the_user_says_that_it_is_one(tmp_path):
    load = read(tmp_path / "a.csv", "t,in,out\n1,5,5\n90000,5,5\n", max_gap_s=1e5)
    assert load.requests[1].arrival_ps == 90_000 * 10**12


def dates(path, *stamps):
    lines = "".join(json.dumps({"t": t, "in": 5, "out": 5}) + "\n" for t in stamps)
    return path, lines, {"unit": "iso8601", "origin": "epoch"}


@pytest.mark.parametrize(
    ("stamp", "reason"),
    [
        ("yesterday", "is not an ISO 8601 time"),
        ("2023-13-01 00:00:00", "is not an ISO 8601 time"),
        ("1969-12-31 00:00:00", "between the years 2000 and 2100"),
        ("9999-12-31 00:00:00", "between the years 2000 and 2100"),
        ("2023-11-16 10:00:01Z", "has a UTC offset, unlike the rows before"),
        ("2023-11-16 10:00:01+02:00", "has a UTC offset, unlike the rows before"),
        ("2023-11-16 09:00:00", "before the row above"),
        ("", "t is missing"),
        (None, "t is missing"),
        (5, "is not an ISO 8601 time"),
    ],
)
def test_dates(tmp_path, stamp, reason):
    path, lines, settings = dates(tmp_path / "a.jsonl", "2023-11-16 10:00:00", stamp)
    error = refusal(path, lines, **settings)
    assert error.line == 2
    assert reason in str(error)
