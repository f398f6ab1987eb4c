"""Tables of figures as Markdown and as rich tables, with one way to write each kind of column."""

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from rich.table import Table

_SHARES = ("median", "p90", "worst", "coverage", "agree", "reversed", "order", "right_side")
_SIGNED = ("mean_signed", "error", "measured_change", "predicted_change")
HEADINGS: Mapping[str, str] = {
    "median": "median |e|",
    "p90": "p90 |e|",
    "mean_signed": "mean e",
    "worst": "worst |e|",
    "worst_case": "worst case",
    "worst_flags": "its flags",
    "right_side": "right side",
    "cost_kind": "cost",
}


def written(column: str, value: object) -> str:
    """One cell: shares as percent, signed ones with their sign, nothing where there is nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if column in _SIGNED and isinstance(value, int | float):
        return f"{value:+.1%}".replace("-", "−")
    if column in _SHARES and isinstance(value, int | float):
        return f"{value:.1%}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(table: pd.DataFrame, columns: Sequence[str]) -> str:
    """A Markdown table of these columns of a frame."""
    numbers = [_is_number(table[column]) for column in columns]
    lines = [
        _line(_heading(column) for column in columns),
        "|" + "|".join("---:" if number else "---" for number in numbers) + "|",
    ]
    rows = table[list(columns)].to_dict("records")
    lines += [_line(written(str(column), value) for column, value in row.items()) for row in rows]
    return "\n".join(lines) + "\n"


def rich_table(title: str, table: pd.DataFrame, columns: Sequence[str]) -> Table:
    """The same for the terminal."""
    drawn = Table(title=title, box=None, header_style="bold", pad_edge=False, title_justify="left")
    for column in columns:
        justify = "right" if _is_number(table[column]) else "left"
        drawn.add_column(_heading(column), justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in table[list(columns)].to_dict("records"):
        drawn.add_row(*(written(str(column), value) for column, value in row.items()))
    return drawn


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _heading(column: str) -> str:
    return HEADINGS.get(column, column.replace("_", " "))


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
