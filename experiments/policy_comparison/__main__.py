"""`python -m experiments.policy_comparison [experiment=NAME] [dir=DIR] [setting=value ...]`.

Runs the sweep of `conf/experiment/NAME.yaml`, prints the ranking and writes the figure into the
sweep's directory. `rows=DIR/rows.csv` draws and ranks a sweep that was run before.
"""

import sys
from pathlib import Path

import pandas as pd
from rich.console import Console

from experiments.policy_comparison.plot import plot
from experiments.policy_comparison.ranking import print_ranking, rank
from servesim.__main__ import main as servesim_main
from servesim.app.sweep import ROWS

DEFAULT = "policy_comparison"


def main(arguments: list[str]) -> int:
    """0, or the exit code of the sweep where a run of it failed."""
    own = ("experiment", "dir", "rows")
    options = dict(a.split("=", 1) for a in arguments if a.split("=", 1)[0] in own and "=" in a)
    overrides = [a for a in arguments if a.split("=", 1)[0] not in own]
    experiment = options.get("experiment", DEFAULT)
    rows_file = Path(options["rows"]) if "rows" in options else None
    code = 0
    if rows_file is None:
        directory = Path(options.get("dir", f"outputs/{experiment}"))
        rows_file = directory / ROWS
        rows_file.unlink(missing_ok=True)
        sweep = [f"experiment={experiment}", f"hydra.sweep.dir={directory}", *overrides]
        code = servesim_main(sweep)
    if not rows_file.is_file():
        if not code:
            print(f"error: no rows at {rows_file}", file=sys.stderr)
        return code or 2
    rows = pd.read_csv(rows_file)
    print_ranking(rank(rows), Console())
    for path in plot(rows, rows_file.parent / experiment):
        print(f"figure: {path}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
