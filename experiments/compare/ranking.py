"""Choices side by side at each load, from the rows of a sweep."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from experiments.compare.comparison import Column, Comparison
from servesim.errors import ServesimError


def read_rows(path: Path, comparison: Comparison) -> pd.DataFrame:
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
    means = _means(comparison)
    needed = [*comparison.keys, "seed", "overloaded", *means]
    missing = [column for column in needed if column not in rows]
    if missing:
        raise ServesimError(
            f"{path}: lacks {', '.join(missing)}; the ranking is of a sweep with "
            f"metrics={comparison.metrics} or more"
        )
    for column in means:
        if not pd.api.types.is_numeric_dtype(rows[column]):
            raise ServesimError(f"{path}: {column} holds what is no number")
    return rows


def rank(rows: pd.DataFrame, comparison: Comparison) -> pd.DataFrame:
    """Mean over seeds of each column, choices by goodput within each load.

    Args:
        rows: one row per run, as in a sweep's rows.csv.
        comparison: what is compared.

    Returns:
        One row per (load, choice): the keys, the columns shown, `goodput_low` and `goodput_high`
        over seeds, `seeds` and `overloaded`, the share of runs whose queue kept growing. A load
        without a rate (a trace at its own intervals) is NaN and comes last.
    """
    keys = comparison.keys
    grouped = rows.assign(overloaded=rows["overloaded"].eq(True)).groupby(keys, dropna=False)
    table = grouped[_means(comparison)].mean()
    table["goodput_low"] = grouped["goodput_rps"].min()
    table["goodput_high"] = grouped["goodput_rps"].max()
    table["seeds"] = grouped["seed"].nunique()
    table["overloaded"] = grouped["overloaded"].mean()
    return table.reset_index().sort_values(
        ["rate_rps", "goodput_rps", comparison.choice],
        ascending=[True, False, True],
        ignore_index=True,
    )


def print_ranking(ranking: pd.DataFrame, comparison: Comparison, console: Console) -> None:
    """One block per load, the best choice first."""
    columns = list(_shown(comparison))
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("load\nreq/s", no_wrap=True)
    table.add_column(comparison.choice, no_wrap=True)
    for column in columns:
        table.add_column(column.header, justify="right", no_wrap=True)
    overloaded = False
    for rate, block in ranking.groupby("rate_rps", dropna=False):
        for position, (_, row) in enumerate(block.iterrows()):
            load = _load(rate) if position == 0 else ""
            if row["overloaded"] > 0:
                load, overloaded = (f"{load} *" if position == 0 else "*"), True
            cells = [format(row[c.name] * c.factor, c.style) for c in columns]
            table.add_row(load, row[comparison.choice], *cells)
    console.print(table)
    seeds = int(ranking["seeds"].max())
    means = "one seed" if seeds == 1 else f"means of {seeds} seeds"
    console.print(
        f"{means}, best goodput first"
        + ("; min and max are goodput over seeds" if comparison.goodput_range else "")
        + ("; *: the queue kept growing in some runs" if overloaded else ""),
        style="dim",
    )


def _means(comparison: Comparison) -> list[str]:
    return [column.name for column in comparison.columns]


def _shown(comparison: Comparison) -> Iterator[Column]:
    """The columns of the ranking, goodput's range after goodput where it is shown."""
    for column in comparison.columns:
        yield column
        if column.name == "goodput_rps" and comparison.goodput_range:
            yield Column("goodput_low", "\nmin", column.style)
            yield Column("goodput_high", "\nmax", column.style)


def _load(rate: Any) -> str:
    return "trace's" if pd.isna(rate) else f"{rate:g}"
