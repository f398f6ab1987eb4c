"""Policies side by side at each load, from the rows of a sweep."""

import pandas as pd
from rich.console import Console
from rich.table import Table

_KEYS = ["rate_rps", "order"]
_COLUMNS = {
    "ttft_p50_s": "TTFT p50, s",
    "ttft_p99_s": "TTFT p99, s",
    "tpot_mean_s": "TPOT mean, ms",
    "e2e_mean_s": "E2E mean, s",
    "goodput_rps": "goodput, requests/s",
    "slo_attainment": "within SLO",
}
_SCALE = {"tpot_mean_s": 1e3}


def rank(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of each column, policies by goodput within each load.

    Args:
        rows: one row per run, as in a sweep's rows.csv.

    Returns:
        One row per (load, policy): `_KEYS`, the columns shown, `goodput_low` and `goodput_high`
        over seeds, `seeds`, and `overloaded`, the share of runs whose queue kept growing.
    """
    grouped = rows.groupby(_KEYS)
    table = grouped[list(_COLUMNS)].mean()
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
    title = f"policies by goodput at each load (mean of {seeds} seeds, goodput [min, max])"
    table = Table(box=None, header_style="bold", pad_edge=False, title=title, title_justify="left")
    table.add_column("requests/s", justify="right")
    table.add_column("order")
    for label in _COLUMNS.values():
        table.add_column(label, justify="right")
    table.add_column("overloaded", justify="right")
    for _, block in ranking.groupby("rate_rps"):
        for position, (_, row) in enumerate(block.iterrows()):
            load = f"{row['rate_rps']:g}" if position == 0 else ""
            cells = [_cell(column, row) for column in _COLUMNS]
            share = f"{row['overloaded']:.0%}"
            table.add_row(load, row["order"], *cells, share, end_section=position == len(block) - 1)
    console.print(table)


def _cell(column: str, row: "pd.Series[float]") -> str:
    if column == "slo_attainment":
        return f"{row[column]:.1%}"
    value = f"{row[column] * _SCALE.get(column, 1.0):.2f}"
    if column == "goodput_rps":
        return f"{value} [{row['goodput_low']:.2f}, {row['goodput_high']:.2f}]"
    return value
