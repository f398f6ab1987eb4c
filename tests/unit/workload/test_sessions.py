"""Sessions from a file: turns as requests, what they share, what is refused."""

import json

import pytest

import servesim
from servesim.content import Inherited
from servesim.errors import ServesimError, SettingError, TraceError
from servesim.workload.release import Turns
from servesim.workload.sessions import COLUMNS, Sessions

HEADER = ",".join(COLUMNS)
# session b starts first; rows of a and b are mixed
ROWS = (
    *("a,1,2.5,0,10,5,0", "b,1,0.5,0,30,4,0", "a,2,0,1.5,20,6,14"),
    *("a,3,0,0,40,2,26", "b,2,0,0.25,34,1,34", "c,7,2.5,0,8,1,0"),
)
PS = 10**12


@pytest.fixture
def made(tmp_path):
    """A workload over these rows, and its file."""

    def write(rows=ROWS, header=HEADER, **settings):
        file = tmp_path / "turns.csv"
        file.write_text("\n".join([header, *rows]) + "\n")
        return Sessions(path=str(file), **settings)

    return write


def test_turns_follow_each_other_and_sessions_come_as_they_start(made):
    load = made().load(1)
    rows = [(r.tenant, r.arrival_ps / PS, r.prompt_tokens, r.output_tokens) for r in load.requests]
    assert rows == [
        *(("b", 0.5, 30, 4), ("b", 0.5, 34, 1)),
        *(("a", 2.5, 10, 5), ("a", 2.5, 20, 6), ("a", 2.5, 40, 2)),
        ("c", 2.5, 8, 1),
    ]
    assert [r.rid for r in load.requests] == list(range(6))
    assert [r.name for r in load.requests] == ["b:1", "b:2", "a:1", "a:2", "a:3", "c:7"]
    assert [r.max_tokens for r in load.requests] == [4, 1, 5, 6, 2, 1]
    assert load.release == Turns((None, PS // 4, None, 3 * PS // 2, 0, None))
    assert load.counts == {"sessions": 3}
    assert load.notes[0].startswith("3 of 3 sessions of ")


def test_a_prompt_begins_with_what_the_turn_before_has_there(made):
    contents = [r.content for r in made().load(1).requests]
    assert contents == [
        *(Inherited((), 34), Inherited(((0, 34),))),
        # 14 of a's first 15 tokens; then 26, of which the first 14 are the first turn's still
        *(Inherited((), 14), Inherited(((2, 14),), 26), Inherited(((2, 14), (3, 26)))),
        Inherited(()),
    ]


def test_a_rate_stretches_the_starts_of_sessions_and_no_gap(made):
    load = made(rate_rps=0.5).load(1)
    # three sessions in 2 s of the file are 1 a second
    assert [r.arrival_ps / PS for r in load.requests] == [1, 1, 5, 5, 5, 5]
    assert load.release == made().load(1).release
    assert {r.arrival_ps for r in made(rate_rps=float("inf")).load(1).requests} == {0}
    with pytest.raises(SettingError, match="all start at one time"):
        made(ROWS[:1], rate_rps=2).load(1)


def test_sessions_can_be_limited_capped_and_made_to_wait(made):
    load = made(limit=1, max_tokens=3, concurrency=2, priorities={1: 0, 4: 1}).load(1)
    assert [(r.tenant, r.max_tokens, r.priority) for r in load.requests] == [("b", 3, 4)] * 2
    assert load.release == Turns((None, PS // 4), 2)
    assert load.counts == {"sessions": 1, "concurrency": 2}


def test_json_lines_are_read_as_well(made, tmp_path):
    rows = [dict(zip(COLUMNS, row.split(","), strict=True)) for row in ROWS]
    typed = [
        {k: v if k == "session" else float(v) if k.endswith("_s") else int(v) for k, v in r.items()}
        for r in rows
    ]
    file = tmp_path / "turns.jsonl"
    file.write_text("\n".join(map(json.dumps, typed)))
    assert Sessions(path=str(file)).load(1).requests == made().load(1).requests


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("a,5,0,0,50,2,3", "turn=5 follows turn 3 of session 'a'; a session's turns must count up"),
        (
            "a,4,0,0,50,2,43",
            "shared_prefix_tokens=43 must be 42 or less: the prompt has 50, "
            "the previous turn has 42 tokens",
        ),
        (
            "d,1,0,0,50,2,1",
            "shared_prefix_tokens=1 must be 0 or less: the prompt has 50, it is a first turn",
        ),
        ("d,1,-1,0,50,2,0", "start_s=-1 is negative"),
        ("a,4,0,2e9,50,2,0", "gap_s=2000000000 is over 30 years"),
        ("d,1,0,0,0,2,0", "prompt_tokens=0 must be 1 or more"),
    ],
)
def test_a_row_that_cannot_be_is_named_with_its_line(made, row, line):
    with pytest.raises(TraceError) as refused:
        made((*ROWS, row)).load(1)
    assert str(refused.value).endswith(f"turns.csv:8: {line}")


def test_a_missing_column_is_named(made):
    with pytest.raises(ServesimError, match=r"no column 'gap_s' .*did you mean 'gaps'"):
        made(header=HEADER.replace("gap_s", "gaps")).load(1)


def test_a_run_serves_the_turns_one_after_the_other(made):
    path = made().path
    common = ("workload=sessions", f"workload.path={path}", "kv.block_size=2")
    result = servesim.simulate(*common)
    assert result.summary["finished"] == 6
    b, a = (result.requests[result.requests["tenant"] == name] for name in "ba")
    assert (b["arrival_s"].iloc[1] - b["last_token_s"].iloc[0]) == pytest.approx(0.25)
    assert (a["arrival_s"].iloc[1] - a["last_token_s"].iloc[0]) == pytest.approx(1.5)
    # whole blocks of 2; the last token of a reply has no KV
    assert b["cached_tokens"].tolist() == [0, 32]
    assert a["cached_tokens"].tolist() == [0, 14, 24]
