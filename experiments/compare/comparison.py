"""What is compared, and the command that runs, ranks and draws it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from servesim.app.simulate import carry_out
from servesim.errors import OutputError, ServesimError

OWN = ("experiment", "dir", "rows")


class Column(NamedTuple):
    """A column of the ranking: of the rows, its header, its format, factor to the header's unit."""

    name: str
    header: str
    style: str
    factor: float = 1.0


class Panel(NamedTuple):
    """A panel of the figure: column of the rows, label, factor to the label's unit, axis."""

    column: str
    label: str
    factor: float = 1.0
    logarithmic: bool = False


@dataclass(frozen=True)
class Comparison:
    """Choices of one group, side by side at each load.

    Attributes:
        experiment: YAML of `conf/experiment/` that is run where no other is asked for.
        choice: column of the rows that holds the choice, e.g. "order".
        first: choice that is drawn first.
        columns: of the ranking, in order.
        panels: of the figure.
        goodput_range: whether the ranking shows goodput's lowest and highest over seeds too.
        metrics: that the sweep must have for these, as a user would write them.
    """

    experiment: str
    choice: str
    first: str
    columns: tuple[Column, ...]
    panels: tuple[Panel, ...]
    metrics: str
    goodput_range: bool = True

    @property
    def keys(self) -> list[str]:
        """What tells one line of the ranking from another."""
        return ["rate_rps", self.choice]


def main(comparison: Comparison, arguments: list[str]) -> int:
    """Run the sweep, print the ranking, write the figure into the sweep's directory.

    `experiment=NAME` runs another YAML, `dir=DIR` says where, `rows=DIR/rows.csv` ranks and draws
    a sweep that was run before; all else are settings.

    Returns:
        0, or 2 after one line on standard error, also where only some runs failed.
    """
    options = dict(a.split("=", 1) for a in arguments if a.split("=", 1)[0] in OWN and "=" in a)
    overrides = [a for a in arguments if a.split("=", 1)[0] not in OWN]
    experiment = options.get("experiment", comparison.experiment)
    code, rows_file = 0, Path(options["rows"]) if "rows" in options else None
    if rows_file is None:
        directory = options.get("dir", f"outputs/{experiment}")
        sweep = [f"experiment={experiment}", f"hydra.sweep.dir={directory}", *overrides]
        code, rows_file = carry_out(sweep, show_rows=False)
    if rows_file is None:  # all runs failed, which has been said, or it was no sweep
        if not code:
            print(f"error: experiment={experiment} made no sweep", file=sys.stderr)
        return 2
    try:
        _show(comparison, rows_file, rows_file.parent / experiment)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _show(comparison: Comparison, rows_file: Path, figure: Path) -> None:
    from experiments.compare.plot import plot
    from experiments.compare.ranking import print_ranking, rank, read_rows

    rows: pd.DataFrame = read_rows(rows_file, comparison)
    print_ranking(rank(rows, comparison), comparison, Console())
    try:
        written = plot(rows, comparison, figure)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write the figure to {figure.parent}: {reason}") from error
    for path in written:
        print(f"figure: {path}")
    if not written:
        print("no figure: it needs runs at a finite rate_rps")
