"""`python -m validation.calibrate.coverage score=DIR[,DIR ...] [half=0|1] [format=json]`.

How often an interval holds what was measured, by GPU, engine and figure: of scores that were made
with `intervals.replications=19`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from servesim import checks
from servesim.app.files import to_json
from servesim.errors import MissingDataError, ServesimError
from validation.calibrate import options
from validation.calibrate.off import half_of, rows_of

USAGE = """\
usage: python -m validation.calibrate.coverage score=DIR[,DIR ...] [option=value ...]

  score=DIR,...  folders with a rows.csv of a score with intervals.replications=19
  half=0 or 1    only the runs in this half by a hash of their names (default: all)
  format=json    as JSON on standard output instead of a table (default: table)

Exits with 0, or 2 on bad input."""
TEXT = ("gpu", "engine", "metric")
HALVES, FORMATS = ("all", "0", "1"), ("table", "json")
ALL = "all"


def main(arguments: Sequence[str]) -> int:
    """0, or 2 after one line on bad input."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    try:
        given = _parsed(arguments)
        rows = rows_of([Path(folder) for folder in given["score"].split(",")])
        if given["half"] != ALL:
            rows = rows.loc[[str(half_of(case)) == given["half"] for case in rows["case"]]]
        found = coverage(rows)
        lines = found.to_dict("records")
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given["format"] == "json":
        print(to_json([{str(name): v for name, v in line.items()} for line in lines]))
    else:
        Console(width=100).print(_table(found))
    return 0


def coverage(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each GPU, engine and metric, and one of all for each metric.

    Columns: gpu, engine, metric, runs, inside (of those runs), below and above (measured, seen from
    the interval), share (inside ÷ runs), width (median of high ÷ low).

    Raises:
        MissingDataError: no row has an interval.
    """
    known = rows.loc[rows["low"].notna() & rows["high"].notna()]
    if known.empty:
        raise MissingDataError("score: no interval in it; score with intervals.replications=19")
    families = [(key, group) for key, group in known.groupby(["gpu", "family", "metric"])]
    totals = [((ALL, ALL, metric), group) for metric, group in known.groupby("metric")]
    return pd.DataFrame([_line(key, group) for key, group in (*families, *totals)])


def _line(key: tuple[object, ...], rows: pd.DataFrame) -> dict[str, object]:
    below = int((rows["measured"] < rows["low"]).sum())
    above = int((rows["measured"] > rows["high"]).sum())
    inside = len(rows) - below - above
    counts = {"runs": len(rows), "inside": inside, "below": below, "above": above}
    width = float((rows["high"] / rows["low"]).median())
    names = dict(zip(TEXT, map(str, key), strict=True))
    return {**names, **counts, "share": inside / len(rows), "width": width}


def _table(found: pd.DataFrame) -> Table:
    table = Table(title="measured figures inside their intervals", box=None)
    for column in found.columns:
        table.add_column(column, justify="left" if column in TEXT else "right")
    for line in found.to_dict("records"):
        share, width = f"{line['share']:.0%}", f"× {line['width']:.2f}"
        table.add_row(*(str(line[c]) for c in list(found.columns)[:-2]), share, width)
    return table


def _parsed(arguments: Sequence[str]) -> dict[str, str]:
    given = options.read(arguments, {"half": ALL, "format": FORMATS[0]}, ("score",))
    checks.choice("half", given["half"], HALVES)
    checks.choice("format", given["format"], FORMATS)
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
