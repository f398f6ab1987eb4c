"""`python -m experiments.policy_comparison [experiment=NAME] [dir=DIR] [setting=value ...]`.

Runs the sweep of `conf/experiment/NAME.yaml`, prints the ranking and writes the figure into the
sweep's directory. `rows=DIR/rows.csv` draws and ranks a sweep that was run before.
"""

import sys
from pathlib import Path

import pandas as pd
from rich.console import Console

from experiments.policy_comparison.plot import plot
from experiments.policy_comparison.ranking import print_ranking, rank, read_rows
from servesim.app.simulate import carry_out
from servesim.errors import OutputError, ServesimError

DEFAULT = "policy_comparison"
OWN = ("experiment", "dir", "rows")


def main(arguments: list[str]) -> int:
    """0, or 2 after one line on standard error, also where only some runs failed."""
    options = dict(a.split("=", 1) for a in arguments if a.split("=", 1)[0] in OWN and "=" in a)
    overrides = [a for a in arguments if a.split("=", 1)[0] not in OWN]
    experiment = options.get("experiment", DEFAULT)
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
        _show(read_rows(rows_file), rows_file.parent / experiment)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _show(rows: pd.DataFrame, figure: Path) -> None:
    print_ranking(rank(rows), Console())
    try:
        written = plot(rows, figure)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot write the figure to {figure.parent}: {reason}") from error
    for path in written:
        print(f"figure: {path}")
    if not written:
        print("no figure: it needs runs at a finite rate_rps")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
