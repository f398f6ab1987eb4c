"""Rows of other people's CSV and JSON Lines files; every error names file, line and column."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servesim.errors import MissingDataError, TraceError, nearest

_BLANK = ("", "nan", "none", "null")
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Row:
    """One row; the getters check what they read.

    Attributes:
        file: the file, as errors name it.
        line: of the file, from 1.
        values: column → text or JSON value.
    """

    file: str
    line: int
    values: Mapping[str, object]

    def error(self, column: str, reason: str) -> TraceError:
        """The value of `column` is wrong."""
        return TraceError(self.file, self.line, f"{column}={self.values.get(column)!r}: {reason}")

    def given(self, column: str) -> bool:
        """Whether there is a value."""
        value = self.values.get(column)
        return value is not None and str(value).strip().lower() not in _BLANK

    def text(self, column: str) -> str:
        """A value that is not blank."""
        if not self.given(column):
            raise self.error(column, "must be given")
        return str(self.values[column]).strip()

    def text_or_none(self, column: str) -> str | None:
        """The value, or None where it is blank."""
        return self.text(column) if self.given(column) else None

    def number(self, column: str) -> float:
        """A finite number of at least 0."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, "must be a number") from None
        if not math.isfinite(value) or value < 0:
            raise self.error(column, "must be a finite number of at least 0")
        return value

    def positive(self, column: str) -> float:
        """A finite number above 0."""
        value = self.number(column)
        if value == 0:
            raise self.error(column, "must be above 0")
        return value

    def number_or_none(self, column: str) -> float | None:
        """The number, or None where it is blank."""
        return self.number(column) if self.given(column) else None

    def whole(self, column: str, at_least: int = 1) -> int:
        """A whole number; 16.0 is one."""
        value = self.number(column)
        if value != int(value) or value < at_least:
            raise self.error(column, f"must be a whole number of at least {at_least}")
        return int(value)

    def integer(self, column: str) -> int:
        """A whole number, which may be negative."""
        text = self.text(column)
        try:
            return int(text)
        except ValueError:
            raise self.error(column, "must be a whole number") from None

    def whole_or_none(self, column: str) -> int | None:
        """The whole number, or None where it is blank."""
        return self.whole(column) if self.given(column) else None

    def flag(self, column: str) -> bool:
        """True or false; blank is false."""
        text = self.text(column).lower() if self.given(column) else "false"
        if text not in _FLAGS:
            raise self.error(column, "must be true or false")
        return _FLAGS[text]


def read_csv(path: Path, columns: Sequence[str]) -> list[Row]:
    """Rows of a CSV file that has at least `columns`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            rows = [Row(str(path), reader.line_num, values) for values in reader]
            header = reader.fieldnames or []
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, error) from None
    require(path, header, columns)
    for row in rows:
        if None in row.values or None in row.values.values():
            raise TraceError(row.file, row.line, f"must have {len(header)} columns")
    return rows


def read_jsonl(path: Path, columns: Sequence[str]) -> list[Row]:
    """Objects of a JSON Lines file, each with at least `columns`."""
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            values = json.loads(line)
        except ValueError as error:
            raise TraceError(str(path), number, f"is no JSON ({error})") from None
        if not isinstance(values, dict):
            raise TraceError(str(path), number, "must be an object")
        require(path, list(values), columns, number)
        rows.append(Row(str(path), number, values))
    return rows


def read_json(path: Path) -> object:
    """The content of a JSON file."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise TraceError(str(path), None, f"is no JSON ({error})") from None


def read_text(path: Path) -> str:
    """The content of a text file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def require(path: Path, header: Sequence[str], columns: Sequence[str], line: int = 1) -> None:
    """Refuse a header that lacks one of `columns`."""
    for column in columns:
        if column not in header:
            reason = f"lacks the column '{column}'{nearest(column, map(str, header))}"
            raise TraceError(str(path), line, reason)


def _unreadable(path: Path, error: Exception) -> MissingDataError | TraceError:
    if isinstance(error, FileNotFoundError):
        return MissingDataError(f"{path}: no such file; see validation/sources/README.md")
    return TraceError(str(path), None, f"cannot be read ({error})")
