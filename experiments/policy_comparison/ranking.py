"""Policies side by side at each load, from the rows of a sweep."""

from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from servesim.errors import ServesimError

_KEYS = ["rate_rps", "order"]
# column → header, format, factor to the header's unit
_COLUMNS = {
    "ttft_p50_s": ("TTFT p50\ns", ".2f", 1.0),
    "ttft_p99_s": ("TTFT p99\ns", ".2f", 1.0),
    "tpot_mean_s": ("TPOT\nms", ".1f", 1e3),
    "goodput_rps": ("goodput\nreq/s", ".2f", 1.0),
    "goodput_low": ("\nmin", ".2f", 1.0),
    "goodput_high": ("\nmax", ".2f", 1.0),
    "slo_attainment": ("within\nSLO", ".0%", 1.0),
}
_MEANS = [c for c in _COLUMNS if c not in ("goodput_low", "goodput_high")]

_NEEDED = (*_KEYS, "seed", "overloaded", *_MEANS)


def read_rows(path: Path) -> pd.DataFrame:
    """The rows of a sweep.

    Raises:
        ServesimError: the file cannot be read, or it lacks columns that the ranking is made of.
    """
    try:
        rows = pd.read_csv(path)
    except OSError as error:
        raise ServesimError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # pandas' parser errors, and text that is not UTF-8
        reason = " ".join(str(error).split())
        raise ServesimError(f"{path}: is no CSV table: {reason}") from error
    missing = [column for column in _NEEDED if column not in rows]
    if missing:
        raise ServesimError(
            f"{path}: lacks {', '.join(missing)}; the ranking is of a sweep with "
            "metrics=[latency,goodput,overload] or more"
        )
    for column in _MEANS:
        if not pd.api.types.is_numeric_dtype(rows[column]):
            raise ServesimError(f"{path}: {column} holds what is no number")
    return rows


def rank(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of each column, policies by goodput within each load.

    Args:
        rows: one row per run, as in a sweep's rows.csv.

    Returns:
        One row per (load, policy): `_KEYS`, the columns shown, `goodput_low` and `goodput_high`
        over seeds, `seeds` and `overloaded`, the share of runs whose queue kept growing. A load
        without a rate (a trace at its own intervals) is NaN and comes last.
    """
    grouped = rows.assign(overloaded=rows["overloaded"].eq(True)).groupby(_KEYS, dropna=False)
    table = grouped[_MEANS].mean()
    table["goodput_low"] = grouped["goodput_rps"].min()
    table["goodput_high"] = grouped["goodput_rps"].max()
    table["seeds"] = grouped["seed"].nunique()
    table["overloaded"] = grouped["overloaded"].mean()
    return table.reset_index().sort_values(
        ["rate_rps", "goodput_rps", "order"], ascending=[True, False, True], ignore_index=True
    )


def print_ranking(ranking: pd.DataFrame, console: Console) -> None:
    """One block per load, the best policy first."""
    seeds = int(ranking["seeds"].max())
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("load\nreq/s", no_wrap=True)
    table.add_column("order", no_wrap=True)
    for header, _, _ in _COLUMNS.values():
        table.add_column(header, justify="right", no_wrap=True)
    overloaded = False
    for rate, block in ranking.groupby("rate_rps", dropna=False):
        for position, (_, row) in enumerate(block.iterrows()):
            load = _load(rate) if position == 0 else ""
            if row["overloaded"] > 0:
                load, overloaded = (f"{load} *" if position == 0 else "*"), True
            cells = [format(row[c] * factor, style) for c, (_, style, factor) in _COLUMNS.items()]
            table.add_row(load, row["order"], *cells)
    console.print(table)
    console.print(
        f"means of {seeds} seeds, policies by goodput; min and max are goodput over seeds"
        + ("; *: the queue kept growing in some runs" if overloaded else ""),
        style="dim",
    )


def _load(rate: Any) -> str:
    return "trace's" if pd.isna(rate) else f"{rate:g}"
