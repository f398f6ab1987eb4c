"""Policies side by side at each load, from the rows of a sweep."""

import pandas as pd
from rich.console import Console
from rich.table import Table

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


def rank(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of each column, policies by goodput within each load.

    Args:
        rows: one row per run, as in a sweep's rows.csv.

    Returns:
        One row per (load, policy): `_KEYS`, the columns shown, `goodput_low` and `goodput_high`
        over seeds, `seeds` and `overloaded`, the share of runs whose queue kept growing.
    """
    grouped = rows.groupby(_KEYS)
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
    for _, block in ranking.groupby("rate_rps"):
        for position, (_, row) in enumerate(block.iterrows()):
            load = f"{row['rate_rps']:g}" if position == 0 else ""
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
