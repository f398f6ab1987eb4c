"""One run beside its prediction, as a table for the terminal."""

from collections.abc import Mapping

import pandas as pd
from rich.console import Console
from rich.table import Table

from validation.compare.errors import relative_error

Predicted = Mapping[str, Mapping[str, float]]  # metric → statistic → value


def print_comparison(lines: pd.DataFrame, peers: Mapping[str, Predicted], console: Console) -> None:
    """Measured, simulated and error of each figure, and the error of each peer's own prediction.

    Args:
        lines: one per figure: metric, statistic, measured, predicted, error.
        peers: another simulator → what it predicted of the same run.
        console: where to.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for column in ("measured", "simulated", "error", *(f"{peer}'s error" for peer in peers)):
        table.add_column(column, justify="right")
    for line in lines.to_dict("records"):
        metric, statistic, measured = line["metric"], line["statistic"], line["measured"]
        theirs = [predicted.get(metric, {}).get(statistic) for predicted in peers.values()]
        table.add_row(
            f"{metric} {statistic}",
            f"{measured:.3f}",
            _number(line["predicted"]),
            _share(line["error"]),
            *(_share(None if p is None else relative_error(p, measured)) for p in theirs),
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "-" if value is None or pd.isna(value) else f"{value:.3f}"


def _share(error: float | None) -> str:
    return "-" if error is None or pd.isna(error) else f"{error:+.1%}"
