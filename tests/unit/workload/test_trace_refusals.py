"""Every refusal names the file, the line and the reason."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servesim.errors import (
    MissingDataError,
    ServesimError,
    SettingError,
    TraceError,
    UnknownChoiceError,
)
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


@pytest.mark.parametrize(
    ("rows", "line", "reason"),
    [
        ("1,5,5\n,5,5\n", 3, "t is missing"),
        ("1,5,5\n2,,5\n", 3, "in is missing"),
        ("1,5,5\nsoon,5,5\n", 3, "t='soon' is not a finite number"),
        ("nan,5,5\n", 2, "t='nan' is not a finite number"),
        ("1,5,5\ninf,5,5\n", 3, "t='inf' is not a finite number"),
        ("1,5,5\n2,five,5\n", 3, "in='five' is not a finite number"),
        ("-1,5,5\n", 2, "t=-1 is negative"),
        ("1,0,5\n", 2, "in=0 must be 1 or more"),
        ("1,-4,5\n", 2, "in=-4 must be 1 or more"),
        ("1,5,0\n", 2, "out=0 must be 1 or more"),
        ("1,5.5,5\n", 2, "in=5.5 is not a whole number"),
        ("1,1e300,5\n", 2, "in=1e[+]300 must be 1000000000 or less"),
        ("1,99999999999999999999999,5\n", 2, "must be 1000000000 or less"),
        ("1,5,5\n3,5,5\n2,5,5\n", 4, "t=2 is 1 s before the row above .3.: sort the trace"),
        ("1,5,5\n2,5\n", 3, "2 values, the header 3: is the line cut off"),
        ("1,5,5\n2,5,5,5\n", 3, "4 values, the header 3"),
        ('1,5,5\n2,"5,5\n', 3, "is not CSV"),
        ("1,5,5\n\n\n2,x,5\n", 5, "in='x'"),
    ],
)
def test_csv_rows(tmp_path, rows, line, reason):
    error = refusal(tmp_path / "a.csv", "t,in,out\n" + rows)
    assert error.line == line
    with pytest.raises(TraceError, match=reason):
        raise error


def test_a_value_over_several_lines_does_not_shift_line_numbers(tmp_path):
    text = 't,note,in,out\n1,"two\nlines",5,5\n2,"x",oops,5\n'
    assert refusal(tmp_path / "a.csv", text).line == 4


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", None, None),
        ("t,in,out\n", None, "has no rows"),
        ("t,in,output\n1,5,5\n", 1, "no column 'out' .*did you mean 'output'"),
        ("t,in,in,out\n1,5,5,5\n", 1, "column 'in' twice"),
        (b"t,in,out\n1,5,5\n\xff,5,5\n", 3, "not UTF-8"),
    ],
)
def test_csv_files(tmp_path, content, line, reason):
    error = refusal(tmp_path / "a.csv", content)
    if reason is not None:
        assert error.line == line
        with pytest.raises(TraceError, match=reason):
            raise error


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    assert len(read(tmp_path / "a.csv", b"\xef\xbb\xbft,in,out\r\n1,5,5\r\n").requests) == 1


def test_whole_numbers_as_pandas_writes_them_are_read(tmp_path):
    assert read(tmp_path / "a.csv", "t,in,out\n1,512.0,5\n").requests[0].prompt_tokens == 512


GOOD = '{"t": 1, "in": 5, "out": 5}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"t": 2, "in": 5, "ou', "is not one JSON value"),
        ("[1, 2, 3]", "is not a JSON object"),
        ("7", "is not a JSON object"),
        ("[" * 100_000, "is not one JSON value"),
        ('{"t": 2, "in": 5}', "no column 'out'"),
        ('{"t": NaN, "in": 5, "out": 5}', "NaN is not JSON"),
        ('{"t": null, "in": 5, "out": 5}', "t is missing"),
        ('{"t": "2", "in": 5, "out": 5}', "t='2' is not a finite number"),
        ('{"t": true, "in": 5, "out": 5}', "t=True is not a finite number"),
        ('{"t": 2, "in": [5], "out": 5}', "is not a finite number"),
        ('{"t": 1e999, "in": 5, "out": 5}', "t=inf is not a finite number"),
        (f'{{"t": {10**400}, "in": 5, "out": 5}}', "is no time of less than 30 years"),
        (f'{{"t": 2, "in": {10**30}, "out": 5}}', "or less"),
    ],
)
def test_json_lines(tmp_path, line, reason):
    error = refusal(tmp_path / "a.jsonl", GOOD + "\n" + line)
    assert error.line == 3
    with pytest.raises(TraceError, match=reason):
        raise error


def test_parquet_rows_are_named_by_number(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": [1.0, 2.0], "in": [5, None], "out": [5, 5]}), path)
    error = refusal(path, path.read_bytes())
    assert "row 2: in is missing" in str(error)
    assert "no column 'out'" in str(refusal(path, _parquet(path, {"t": [1.0], "in": [5]})))
    assert "not a readable Parquet file" in str(refusal(path, b"PAR1 nonsense PAR1"))
    assert "has no rows" in str(refusal(path, _parquet(path, {"t": [], "in": [], "out": []})))


def _parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path.read_bytes()


def test_files_that_are_not_there_or_not_files(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    gone, folder = (
        GenericTrace(path=str(tmp_path / name), columns=NAMES, unit="s", origin="zero")
        for name in ("gone.csv", "folder.csv")
    )
    with pytest.raises(MissingDataError, match=r"gone\.csv: no such trace file"):
        gone.load(0)
    with pytest.raises(TraceError, match="directory"):
        folder.load(0)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("a.txt", {}, "suffix of a trace without file_format '.txt'"),
        ("a.csv", {"file_format": "cvs"}, "did you mean 'csv'"),
        ("a.csv", {"unit": "sec"}, "unknown unit 'sec'"),
        ("a.csv", {"origin": "start"}, "unknown origin 'start'"),
        ("a.csv", {"unit": "iso8601"}, "dates have the origin 'epoch'"),
        ("a.csv", {"blocks_cover": "reply"}, "unknown blocks_cover 'reply'"),
        ("a.csv", {"block_size": 16}, "together with columns.block_ids"),
        ("a.csv", {"columns": {"arrival": "t"}}, "is its _target_ set"),
    ],
)
def test_settings(tmp_path, name, settings, reason):
    with pytest.raises((SettingError, UnknownChoiceError), match=reason):
        read(tmp_path / name, "t,in,out\n1,5,5\n", **settings)


BLOCKS = Columns(arrival="t", prompt_tokens="in", output_tokens="out", block_ids="ids")


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ("[1, 2]", "2 block ids, but 33 tokens make 3 or 4 blocks of block_size=10"),
        ("[1, 2, 3, 4, 5]", "5 block ids"),
        ("[1, 2.5, 3]", "is not a list of whole numbers"),
        ("[true, 2, 3]", "is not a list of whole numbers"),
        ("7", "is not a list of whole numbers"),
        ("[1, 2", "is not a list of whole numbers"),
    ],
)
def test_block_ids(tmp_path, ids, reason):
    text = f't,in,out,ids\n1,33,5,"{ids}"\n'
    error = refusal(tmp_path / "a.csv", text, columns=BLOCKS, block_size=10)
    assert error.line == 2
    assert reason in str(error)


def test_block_ids_without_a_block_size(tmp_path):
    with pytest.raises(SettingError, match="block_size=None"):
        read(tmp_path / "a.csv", "t,in,out,ids\n", columns=BLOCKS)


@pytest.mark.parametrize("junk", [b"\x00\x00\x00", b"\x80\x04}q\x00.", b"\xff\xfe", b"{}", b"\n\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_junk_is_one_clear_line(tmp_path, name, junk):
    with pytest.raises(ServesimError) as caught:
        read(tmp_path / name, junk)
    assert "\n" not in str(caught.value)
