import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servesim.workload.readers.generic import Columns, GenericTrace

NAMES = Columns(arrival="t", prompt_tokens="in", output_tokens="out")
ROWS = {"t": [1.5, 2.25], "in": [10, 20], "out": [3, 4]}


def write(path, rows=None):
    rows = ROWS if rows is None else rows
    lines = [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        body = "".join(",".join(str(v) for v in line.values()) + "\n" for line in lines)
        path.write_text(",".join(rows) + "\n" + body)
    return str(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_format_gives_the_same_requests(tmp_path, suffix):
    path = write(tmp_path / f"a.{suffix}")
    load = GenericTrace(path=path, columns=NAMES, unit="s", origin="zero").load(0)
    assert [(r.arrival_ps, r.prompt_tokens, r.output_tokens) for r in load.requests] == [
        (1_500_000_000_000, 10, 3),
        (2_250_000_000_000, 20, 4),
    ]


def test_the_format_can_be_said(tmp_path):
    path = tmp_path / "a.log"
    path.write_text('{"t": 1, "in": 2, "out": 3}\n')
    trace = GenericTrace(
        path=str(path), columns=NAMES, unit="s", origin="zero", file_format="jsonl"
    )
    assert len(trace.load(0).requests) == 1


@pytest.mark.parametrize(
    ("unit", "ps"), [("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 1000)]
)
def test_units(tmp_path, unit, ps):
    path = write(tmp_path / "a.csv", {"t": [2, 5], "in": [1, 1], "out": [1, 1]})
    load = GenericTrace(path=path, columns=NAMES, unit=unit, origin="zero").load(0)
    assert [r.arrival_ps for r in load.requests] == [2 * ps, 5 * ps]


def test_epoch_nanoseconds_are_exact_though_no_float_holds_them(tmp_path):
    first = 1_700_000_000_000_000_001
    path = write(tmp_path / "a.jsonl", {"t": [first, first + 3], "in": [1, 1], "out": [1, 1]})
    load = GenericTrace(path=path, columns=NAMES, unit="ns", origin="epoch").load(0)
    assert [r.arrival_ps for r in load.requests] == [0, 3000]


def test_a_span_of_a_year_keeps_its_nanoseconds(tmp_path):
    times = [0, 31_536_000_000_000_001]
    path = write(tmp_path / "a.csv", {"t": times, "in": [1, 1], "out": [1, 1]})
    trace = GenericTrace(path=path, columns=NAMES, unit="ns", origin="zero", max_gap_s=1e9)
    assert trace.load(0).requests[1].arrival_ps == times[1] * 1000


@pytest.mark.parametrize(
    "stamps",
    [
        ["2024-02-28T23:59:59.5Z", "2024-02-29T01:00:00.75+01:00"],
        ["2024-02-28 23:59:59.500000", "2024-02-29 00:00:00.75"],
    ],
)
def test_dates_in_every_iso_notation(tmp_path, stamps):
    path = write(tmp_path / "a.csv", {"t": stamps, "in": [1, 1], "out": [1, 1]})
    load = GenericTrace(path=path, columns=NAMES, unit="iso8601", origin="epoch").load(0)
    assert [r.arrival_ps for r in load.requests] == [0, 1_250_000_000_000]


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
def test_time_stamps_of_parquet_are_dates(tmp_path, resolution, zone):
    stamps = pa.array([1_700_000_000, 1_700_000_007]).cast(pa.timestamp("s"))
    rows = {"t": stamps.cast(pa.timestamp(resolution, zone)), "in": [1, 1], "out": [1, 1]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    trace = GenericTrace(
        path=str(tmp_path / "a.parquet"), columns=NAMES, unit="iso8601", origin="epoch"
    )
    assert [r.arrival_ps for r in trace.load(0).requests] == [0, 7 * 10**12]


def blocks(tmp_path, ids, prompts, outputs, **settings):
    names = Columns(arrival="t", prompt_tokens="in", output_tokens="out", block_ids="ids")
    times = list(range(len(ids)))
    rows = {"t": times, "in": prompts, "out": outputs, "ids": ids}
    path = write(tmp_path / "a.jsonl", rows)
    trace = GenericTrace(
        path=path, columns=names, unit="s", origin="zero", block_size=8, **settings
    )
    return [
        r.content.block_keys(r.rid, 0, (r.prompt_tokens + r.output_tokens) // 8, 8)
        for r in trace.load(0).requests
    ]


def test_a_block_only_begun_shares_nothing(tmp_path):
    # As Mooncake's ids do, the second one stands for a block of which 4 tokens are known.
    one, two = blocks(tmp_path, [[5, 6], [5, 6]], prompts=[12, 12], outputs=[20, 20])
    assert one[0] == two[0]
    assert not set(one[1:]) & set(two[1:])


def test_ids_may_cover_the_reply(tmp_path):
    one, two = blocks(
        tmp_path,
        [[5, 6, 7], [5, 6, 7]],
        prompts=[8, 24],
        outputs=[16, 1],
        blocks_cover="prompt_and_output",
    )
    assert one == two


def test_ids_of_single_blocks_are_chained(tmp_path):
    # Block 9 is the same text after two different beginnings: its KV differs.
    one, two = blocks(tmp_path, [[1, 9], [2, 9]], prompts=[16, 16], outputs=[1, 1])
    assert not set(one) & set(two)
