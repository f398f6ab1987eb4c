"""`python -m validation.replay case=NAME [setting=value ...]`: a real run beside its simulation.

A case is a name of `validation/cases` or the path of a case's YAML. Further arguments are settings
of servesim, laid over the case's own.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from servesim.errors import MissingDataError, ServesimError, UnknownChoiceError
from validation.cases.case import Case
from validation.cases.format import read_case
from validation.compare.report import print_comparison
from validation.score.predict import predict
from validation.score.rows import WHOLE_RUN, rows_of
from validation.score.settings import settings_of

CASES = Path(__file__).resolve().parent.parent / "cases"
USAGE = "usage: python -m validation.replay case=NAME|PATH [setting=value ...]"


def main(arguments: Sequence[str]) -> int:
    """0, or 2 after one line on bad input or absent data."""
    names = [a.removeprefix("case=") for a in arguments if a.startswith("case=")]
    overrides = [a for a in arguments if not a.startswith("case=")]
    if len(names) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        path = case_path(names[0])
        _compare(read_case(path), path.parent, overrides)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def case_path(name: str) -> Path:
    """The file of a case, by its name in the repository or by its path.

    Raises:
        MissingDataError: a path at which there is no file.
        UnknownChoiceError: a name that no case has.
    """
    path = Path(name) if name.endswith(".yaml") else CASES / f"{name}.yaml"
    if path.is_file():
        return path
    if name.endswith(".yaml"):
        raise MissingDataError(f"case={name}: no such file")
    raise UnknownChoiceError("case", name, [p.stem for p in CASES.glob("*.yaml")])


def _compare(case: Case, folder: Path, overrides: Sequence[str]) -> None:
    if case.not_covered is not None:
        raise ServesimError(f"{case.name} is not covered: {case.not_covered}")
    settings = settings_of(case, folder)
    prediction = predict(case, settings, overrides)
    lines = pd.DataFrame(rows_of(case, settings, prediction))
    finished = len(prediction.result.record.requests) - prediction.unfinished
    console = Console()
    console.print(f"{case.name}: {finished} requests simulated", highlight=False)
    print_comparison(lines[lines["part"] == WHOLE_RUN], case.peers, console)
    notes = (*settings.notes, *prediction.result.notes)
    for note in (*notes, *(f"warning: {w}" for w in prediction.result.warnings)):
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
