"""A comparison as a table for the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from validation.compare.statistics import errors


def print_comparison(
    measured: Mapping[str, float],
    simulated: Mapping[str, float],
    peers: Mapping[str, Mapping[str, float]],
    console: Console,
) -> None:
    """Measured | simulated | error, and the error of each peer's own prediction."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("")
    for column in ("measured", "simulated", "error", *(f"{peer}'s error" for peer in peers)):
        table.add_column(column, justify="right")
    ours = errors(simulated, measured)
    theirs = [errors(prediction, measured) for prediction in peers.values()]
    for name, value in measured.items():
        table.add_row(
            name,
            f"{value:.3f}",
            f"{simulated[name]:.3f}",
            f"{ours[name]:+.1%}",
            *(f"{error[name]:+.1%}" if name in error else "-" for error in theirs),
        )
    console.print(table)
