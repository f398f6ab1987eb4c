"""`python -m validation.score cases=DIR [out=DIR] [setting=value ...]`: how wrong are we?

Simulates every case of a folder and compares what was measured with what is predicted.
"""

import fnmatch
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from servesim import checks
from servesim.app.files import to_json
from servesim.errors import MissingDataError, ServesimError, SettingError
from validation.cases.case import Case
from validation.cases.format import read_case
from validation.score.pool import cpus, score_all
from validation.score.report import print_score, write_score
from validation.score.rows import FAILED
from validation.score.summary import Score, long_groups, score_of

USAGE = """\
usage: python -m validation.score cases=DIR [option=value ...] [setting=value ...]

  cases=DIR      folder of cases (validation/cases/README.md); required
  out=DIR        where rows.csv, groups.csv, ranking.csv, score.md and figures go
                 (default: outputs/score)
  filter=GLOB    only the cases of that name, e.g. filter='silicon_h100*'
  jobs=N         processes (default: one per CPU)
  format=json    the groups as JSON on standard output instead of tables (default: table)
  setting=value  of servesim, laid over the settings of every case

Exits with 0; 1 if a case failed, the others being written; 2 on bad input."""
FORMATS = ("table", "json")
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    cases: Path
    out: Path
    pattern: str
    jobs: int
    as_json: bool
    overrides: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """0; 1 if a case failed; 2 after one line on bad input."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    try:
        return _score(_parsed(arguments))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED


def _score(asked: Arguments) -> int:
    cases = _cases(asked)
    rows = score_all(cases, asked.cases, asked.overrides, asked.jobs, sys.stderr.isatty())
    score = score_of(rows)
    failed = score.cases(FAILED)
    _refuse_overrides(asked, score)
    written = write_score(score, asked.out)
    if asked.as_json:
        print(to_json(_records(long_groups(score))))
    else:
        print_score(score, Console())
        print(f"\n{score.num_scored} cases scored: {', '.join(str(path) for path in written)}")
    return 1 if len(failed) else 0


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return [{str(name): row[name] for name in row} for row in table.to_dict("records")]


def _refuse_overrides(asked: Arguments, score: Score) -> None:
    """A setting that no case can have is a mistake of the command line, and not of every case."""
    reasons = set(score.cases(FAILED)["reason"])
    if asked.overrides and not score.num_scored and len(reasons) == 1:
        raise ServesimError(f"no case could be simulated: {reasons.pop()}")


def _cases(asked: Arguments) -> list[Case]:
    if not asked.cases.is_dir():
        raise MissingDataError(f"cases={asked.cases}: no such folder")
    paths = sorted(asked.cases.glob("*.yaml"))
    if not paths:
        raise MissingDataError(f"cases={asked.cases}: no *.yaml in it")
    chosen = [path for path in paths if fnmatch.fnmatchcase(path.stem, asked.pattern)]
    if not chosen:
        reason = f"none of the {len(paths)} cases is called so, e.g. {paths[0].stem}"
        raise SettingError("filter", asked.pattern, reason)
    return [read_case(path) for path in chosen]


def _parsed(arguments: Sequence[str]) -> Arguments:
    own = {"out": "outputs/score", "filter": "*", "jobs": str(cpus()), "format": "table"}
    overrides = []
    for word in arguments:
        name, equals, value = word.partition("=")
        if not equals:
            raise ServesimError(f"cannot read '{word}': expected option=value; see --help")
        if name in (*own, "cases"):
            own[name] = value
        else:
            overrides.append(word)
    if not own.get("cases"):
        raise ServesimError("cases=DIR must be given; see --help")
    checks.choice("format", own["format"], FORMATS)
    if not own["jobs"].isdecimal() or int(own["jobs"]) < 1:
        raise SettingError("jobs", own["jobs"], "must be a whole number of processes, 1 or more")
    return Arguments(
        Path(own["cases"]),
        Path(own["out"]),
        own["filter"],
        int(own["jobs"]),
        own["format"] == "json",
        tuple(overrides),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
