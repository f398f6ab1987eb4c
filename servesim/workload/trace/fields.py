"""Raw columns as checked values; every refusal names file, line, column and value."""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from servesim.workload.trace.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# No context is within a factor of a hundred of this; a larger figure is some other column.
MOST_TOKENS = 10**9


def numbers(table: Table, column: str) -> Ints | Floats:
    """Finite numbers, as int64 if all of them are written as whole numbers."""
    values = table.columns[column]
    if table.is_text:
        parsed = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy()
    else:
        for row, value in enumerate(values):
            if type(value) is not int and type(value) is not float:
                raise table.error(row, _not_a_number(column, value))
        parsed = np.asarray(values)
    if parsed.dtype == np.int64:
        return parsed
    try:
        floats: Floats = parsed.astype(np.float64)
    except OverflowError:
        floats = np.asarray([min(max(v, -1e300), 1e300) for v in parsed.tolist()])
    bad = np.flatnonzero(~np.isfinite(floats))
    if bad.size:
        row = int(bad[0])
        raise table.error(row, _not_a_number(column, values[row]))
    return floats


def _not_a_number(column: str, value: object) -> str:
    if value is None or value == "":
        return f"{column} is missing"
    return f"{column}={value!r} is not a finite number"


def whole(table: Table, column: str, *, at_least: int, at_most: int = MOST_TOKENS) -> Ints:
    """Whole numbers in [at_least, at_most]; `512.0` is one, as pandas writes it."""
    found = numbers(table, column)
    for wrong, reason in (
        (found != np.rint(found), "is not a whole number"),
        (found < at_least, f"must be {at_least} or more"),
        (found > at_most, f"must be {at_most} or less"),
    ):
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[0])
            raise table.error(row, f"{column}={found[row]:.12g} {reason}")
    return found.astype(np.int64)


def texts(table: Table, column: str) -> list[str]:
    """Names: text or whole numbers; a null is the empty name."""
    values = table.columns[column]
    for row, value in enumerate(values):
        if not isinstance(value, str | int | None):
            raise table.error(row, f"{column}={value!r} is neither text nor a whole number")
    return ["" if value is None else str(value) for value in values]


def dates(table: Table, column: str) -> list[str]:
    """Dates and times as written; none missing."""
    written = []
    for row, value in enumerate(table.columns[column]):
        if value is None or value == "":
            raise table.error(row, f"{column} is missing")
        if not isinstance(value, str):
            raise table.error(row, f"{column}={value!r} is not an ISO 8601 time in text")
        written.append(value)
    return written


def block_ids(table: Table, column: str) -> list[tuple[int, ...]]:
    """Lists of whole numbers; in CSV written as JSON, `"[1, 2]"`."""
    lists = []
    for row, value in enumerate(table.columns[column]):
        ids = _json_list(value) if table.is_text else value
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise table.error(row, f"{column}={str(value)[:40]!r} is not a list of whole numbers")
        lists.append(tuple(ids))
    return lists


def _json_list(written: object) -> object:
    try:
        return json.loads(str(written))
    except (ValueError, RecursionError):
        return None


def full_blocks(
    table: Table, ids: Sequence[tuple[int, ...]], covered_tokens: Ints, block_size: int
) -> list[tuple[int, ...]]:
    """The ids of full blocks; the id of a last block only begun is left out.

    Raises:
        TraceError: a row has not as many ids as its tokens fill or begin.
    """
    full = []
    for row, (of_row, tokens) in enumerate(zip(ids, covered_tokens.tolist(), strict=True)):
        least, most = tokens // block_size, -(-tokens // block_size)
        if not least <= len(of_row) <= most:
            wanted = f"{least}" if least == most else f"{least} or {most}"
            reason = f"{len(of_row)} block ids, but {tokens} tokens make {wanted} blocks"
            raise table.error(row, f"{reason} of block_size={block_size}")
        full.append(of_row[:least])
    return full


def chained(ids: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Ids that stand for all blocks so far, from ids that may stand for one block alone.

    Ids that were chained already only change their numbers.
    """
    known: dict[tuple[int, int], int] = {}
    lists = []
    for of_row in ids:
        chain, parent = [], -1
        for own in of_row:
            parent = known.setdefault((parent, own), len(known))
            chain.append(parent)
        lists.append(tuple(chain))
    return lists
