"""Reading CSV tables of measurements: columns and numbers checked, errors by file and line."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from servesim.errors import TraceError

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def records(path: Path, columns: Sequence[str], unit: str = "") -> list[tuple[int, dict[str, str]]]:
    """Rows with their line numbers; the header must name `columns`.

    Args:
        path: of the file.
        columns: that must be there; others are kept.
        unit: what times are in, for the message where a column is missing.

    Raises:
        TraceError: there is no such file, column or row.
    """
    if not path.is_file():
        raise TraceError(str(path), None, "is missing")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in columns if name not in (reader.fieldnames or ())]
        if lacking:
            times = f" (times in {unit})" if unit else ""
            reason = f"no column {', '.join(lacking)} in {reader.fieldnames}{times}"
            raise TraceError(str(path), 1, reason)
        rows = [(reader.line_num, row) for row in reader]
    if not rows:
        raise TraceError(str(path), None, "has no rows")
    return rows


def number(path: Path, line: int, name: str, text: str | None, *, signed: bool = False) -> float:
    """A cell as a finite number, not below zero unless `signed`, or TraceError."""
    try:
        value = float(text or "")
    except ValueError:
        raise TraceError(str(path), line, f"{name}={text!r} is not a number") from None
    if not np.isfinite(value) or (value < 0 and not signed):
        raise TraceError(str(path), line, f"{name}={text} must be finite and not negative")
    return value


def duration(path: Path, line: int, name: str, text: str | None) -> float:
    """A cell as a time above zero, or TraceError."""
    value = number(path, line, name, text)
    if value == 0:
        raise TraceError(str(path), line, f"{name}={text}: a kernel takes some time")
    return value


def whole(path: Path, line: int, name: str, text: str | None) -> int:
    """A cell as a count, or TraceError."""
    value = number(path, line, name, text)
    if value != int(value):
        raise TraceError(str(path), line, f"{name}={text} is not a whole number")
    return int(value)
