"""A trace file as named columns of raw values, each row with its place in the file."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from servesim import checks
from servesim.errors import MissingDataError, TraceError, UnknownChoiceError, nearest

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class Table:
    """Raw columns.

    Attributes:
        file: the path as the user gave it.
        columns: values by column name: strings from CSV, JSON or Arrow values otherwise.
        lines: line of the file on which each row begins, from 1; None where a file has no lines.
        is_text: whether numbers are still written as text.
    """

    file: str
    columns: dict[str, list[object]]
    lines: Sequence[int] | None
    is_text: bool

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def in_order(self, order: Sequence[int]) -> "Table":
        """The same rows in another order, each with its own line."""
        columns = {name: [column[i] for i in order] for name, column in self.columns.items()}
        lines = None if self.lines is None else [self.lines[i] for i in order]
        return Table(self.file, columns, lines, self.is_text)

    def error(self, row: int, reason: str) -> TraceError:
        """What is wrong with row `row` (from 0), with its place in the file."""
        if self.lines is None:
            return TraceError(self.file, None, f"row {row + 1}: {reason}")
        return TraceError(self.file, self.lines[row], reason)


def read(file: str, columns: Sequence[str], file_format: str | None = None) -> Table:
    """Read the named columns of a CSV, JSON Lines or Parquet file.

    Args:
        file: path, relative to the working directory.
        columns: the columns wanted; others are ignored.
        file_format: csv, jsonl or parquet; None goes by the suffix.

    Raises:
        MissingDataError: there is no such file.
        TraceError: it is unreadable, malformed, empty, or lacks a column.
    """
    if file_format is None:
        suffix = Path(file).suffix.lower()
        if suffix not in FORMATS:
            raise UnknownChoiceError("suffix of a trace without file_format", suffix, FORMATS)
        file_format = FORMATS[suffix]
    readers: dict[str, Callable[[str, Sequence[str]], Table]]
    readers = {"csv": _read_csv, "jsonl": _read_jsonl, "parquet": _read_parquet}
    checks.choice("file_format", file_format, tuple(readers))
    try:
        table = readers[file_format](file, columns)
    except FileNotFoundError:
        where = "the shipped workloads look in $SERVESIM_DATA, else in ../shared/data"
        raise MissingDataError(f"{file}: no such trace file ({where})") from None
    except UnicodeDecodeError:
        _blame_encoding(file)
    except OSError as error:
        # Arrow's own I/O errors have no strerror.
        reason = error.strerror or str(error).partition("\n")[0]
        raise TraceError(file, None, f"cannot be read: {reason}") from error
    if len(table) == 0:
        raise TraceError(file, None, "has no rows")
    return table


def _open(file: str) -> IO[str]:
    return Path(file).open(encoding="utf-8-sig", newline="")


def _blame_encoding(file: str) -> NoReturn:
    with Path(file).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                raise TraceError(file, number, "is not UTF-8 text") from None
    raise TraceError(file, None, "is not UTF-8 text")


def _no_column(file: str, line: int | None, name: str, known: Sequence[str]) -> TraceError:
    return TraceError(file, line, f"no column '{name}'{nearest(name, known)}")


def _csv_rows(file: str, text: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each begins on; a quoted value may run over several lines."""
    rows, begins = csv.reader(text, strict=True), 1
    try:
        for row in rows:
            if row:
                yield begins, row
            begins = rows.line_num + 1
    except csv.Error as error:
        raise TraceError(file, begins, f"is not CSV: {error}") from None


def _read_csv(file: str, columns: Sequence[str]) -> Table:
    with _open(file) as text:
        rows = _csv_rows(file, text)
        top, header = next(rows, (1, []))
        for name in columns:
            if header.count(name) != 1:
                if name in header:
                    raise TraceError(file, top, f"has the column '{name}' twice")
                raise _no_column(file, top, name, header)
        where = [header.index(name) for name in columns]
        lines: list[int] = []
        values: list[list[object]] = [[] for _ in columns]
        for line, row in rows:
            if len(row) != len(header):
                reason = f"has {len(row)} values, the header {len(header)}: is the line cut off?"
                raise TraceError(file, line, reason)
            lines.append(line)
            for column, i in zip(values, where, strict=True):
                column.append(row[i])
    return Table(file, dict(zip(columns, values, strict=True)), lines, is_text=True)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_jsonl(file: str, columns: Sequence[str]) -> Table:
    decode = json.JSONDecoder(parse_constant=_no_constant).decode
    lines: list[int] = []
    values: list[list[object]] = [[] for _ in columns]
    with _open(file) as text:
        for line, written in enumerate(text, start=1):
            if not written.strip():
                continue
            try:
                row = decode(written)
            except (ValueError, RecursionError) as error:
                raise TraceError(file, line, f"is not one JSON value: {error}") from None
            if not isinstance(row, dict):
                raise TraceError(file, line, "is not a JSON object {...}")
            lines.append(line)
            for name, column in zip(columns, values, strict=True):
                if name not in row:
                    raise _no_column(file, line, name, [str(key) for key in row])
                column.append(row[name])
    return Table(file, dict(zip(columns, values, strict=True)), lines, is_text=False)


def _read_parquet(file: str, columns: Sequence[str]) -> Table:
    try:
        parquet = pq.ParquetFile(file)
        known = parquet.schema_arrow.names
        for name in columns:
            if name not in known:
                raise _no_column(file, None, name, known)
        read_in = parquet.read(columns=list(columns))
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise TraceError(file, None, f"is not a readable Parquet file: {reason}") from error
    values: dict[str, list[object]] = {}
    for name in columns:
        column = read_in.column(name)
        # As text, time stamps keep their nanoseconds and look the same from every format.
        is_time = pa.types.is_timestamp(column.type)
        values[name] = (column.cast(pa.string()) if is_time else column).to_pylist()
    return Table(file, values, None, is_text=False)
