"""`python -m validation.calibrate.residuals score=DIR[,DIR ...] [option=value ...]`.

What `intervals.replications` draws from: by how much the runs of a score were off, tuned on or not,
per GPU and engine, into the book of the calibration.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from servesim import checks
from servesim.app.paths import conf_dir
from servesim.errors import ServesimError
from validation.calibrate import book, options, spread
from validation.calibrate.off import Off, half_of, offs, rows_of

USAGE = """\
usage: python -m validation.calibrate.residuals score=DIR[,DIR ...] [option=value ...]

  score=DIR,...  folders with a rows.csv of `python -m validation.score`
  into=families  each GPU and engine of the book, of its own runs with kernel tables (default)
       default   the book's default.any, for GPUs and engines without a run: of a score in which
                 every case ran with the host times that are assumed for them
       roofline  conf/cost/roofline.yaml: of a score with cost=roofline
  half=0 or 1    only the runs in this half by a hash of their names, so that the intervals can be
                 tried on the other (default: all)
  write=true     put them there; from the book, `validation.calibrate.apply` carries them into costs

Exits with 0, or 2 on bad input."""
INTO = ("families", "default", "roofline")
HALVES = ("all", "0", "1")
KERNELS = "kernels"
MARK = "residuals:"
Trees = dict[spread.Family, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    score: tuple[Path, ...]
    into: str
    half: str
    write: bool


def main(arguments: Sequence[str]) -> int:
    """0, or 2 after one line on bad input."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    try:
        _residuals(_parsed(arguments))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _residuals(asked: Arguments) -> None:
    rows = rows_of(asked.score)
    if asked.into == "families":
        rows = rows.loc[rows["cost_kind"] == KERNELS]
    runs = [run for run in offs(rows) if asked.half in ("all", str(half_of(run.case)))]
    if not runs:
        raise ServesimError(f"score: no run has what into={asked.into} is made of")
    found = _found(asked.into, runs)
    console = Console(width=120)
    console.print(_table(found))
    if asked.into == "families":
        console.print(_left_out(runs))
    if not asked.write:
        return
    if asked.into == "roofline":
        write_into(conf_dir() / "cost" / "roofline.yaml", *found.values())
    else:
        book.write_residuals(found)


def _found(into: str, runs: Sequence[Off]) -> Trees:
    if into == "families":
        return spread.residuals_by_family(runs)
    return {book.DEFAULT if into == "default" else ("any GPU", into): spread.pooled(runs)}


def write_into(path: Path, residuals: dict[str, Any]) -> None:
    """Put residuals at the end of a cost's YAML, in place of those there; the rest stays as it is.

    Raises:
        OutputError: the file cannot be written.
    """
    text = path.read_text(encoding="utf-8")
    before = text.partition(f"\n{MARK}")[0].rstrip("\n")
    added = yaml.safe_dump({"residuals": residuals}, sort_keys=False, default_flow_style=None)
    book.write_text(path, f"{before}\n{added}")


def _table(found: Trees) -> Table:
    table = Table(title="log(measured ÷ predicted) at 5, 50, 95 %", box=None)
    for column in ("family", "decode", "prefill", "correlation", "of"):
        table.add_column(column, justify="left" if column in ("family", "of") else "right")
    for family, residuals in found.items():
        shown = [_at(residuals, kind) for kind in ("decode", "prefill")]
        table.add_row(".".join(family), *shown, f"{residuals['correlation']:+.2f}", residuals["of"])
    return table


def _left_out(runs: Sequence[Off]) -> Table:
    table = Table(title="runs within 5 to 95 % of what other configurations' runs say", box=None)
    for column in ("family", "runs", "decode", "prefill"):
        table.add_column(column, justify="left" if column == "family" else "right")
    enough = {k: own for k, own in spread.by_family(runs).items() if spread.is_enough(own)}
    inside = {".".join(family): spread.left_out(own) for family, own in enough.items()}
    if inside:
        inside["all"] = np.concatenate(list(inside.values()))
    for name, shares in inside.items():
        table.add_row(name, str(len(shares)), *(f"{share:.0%}" for share in shares.mean(axis=0)))
    return table


def _at(residuals: dict[str, Any], kind: str) -> str:
    by_level = dict(zip(residuals["levels"], residuals[kind], strict=True))
    return ", ".join(f"{by_level[level]:+.2f}" for level in (0.05, 0.5, 0.95) if level in by_level)


def _parsed(arguments: Sequence[str]) -> Arguments:
    defaults = {"into": INTO[0], "half": HALVES[0], "write": "false"}
    given = options.read(arguments, defaults, ("score",))
    checks.choice("into", given["into"], INTO)
    checks.choice("half", given["half"], HALVES)
    checks.choice("write", given["write"], ("true", "false"))
    folders = tuple(Path(folder) for folder in given["score"].split(","))
    return Arguments(folders, given["into"], given["half"], given["write"] == "true")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
