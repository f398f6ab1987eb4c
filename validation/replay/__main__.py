"""`python -m validation.replay case=NAME [override ...]`: a real run beside its simulation.

Further arguments are settings of servesim, laid over the case's own.
"""

import sys

import pandas as pd
from rich.console import Console

import servesim
from servesim.errors import ServesimError
from validation.compare.report import print_comparison
from validation.compare.statistics import ServedRequest, statistics
from validation.replay.case import Case, load_case, read_measured, read_peer


def main(arguments: list[str]) -> int:
    """0, or 2 after one line on bad input or absent data."""
    names = [a.removeprefix("case=") for a in arguments if a.startswith("case=")]
    overrides = [a for a in arguments if not a.startswith("case=")]
    if len(names) != 1:
        print("usage: python -m validation.replay case=NAME [setting=value ...]", file=sys.stderr)
        return 2
    try:
        _compare(load_case(names[0]), overrides)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _compare(case: Case, overrides: list[str]) -> None:
    measured = read_measured(case)
    peers = read_peer(case)
    result = servesim.simulate(*case.overrides, *overrides)
    simulated = served(result.requests)
    console = Console()
    console.print(f"{case.name}: {len(measured)} requests measured, {len(simulated)} simulated")
    print_comparison(statistics(measured), statistics(simulated), peers, console)
    for note in (*result.notes, *(f"warning: {w}" for w in result.warnings)):
        console.print(f"- {note}", style="dim", highlight=False)


def served(requests: pd.DataFrame) -> list[ServedRequest]:
    """The finished requests of a simulated run."""
    finished = requests[requests["status"] == "finished"]
    columns = ("arrival_s", "first_token_s", "last_token_s", "output_tokens")
    rows = zip(*(finished[column].tolist() for column in columns), strict=True)
    return [ServedRequest(*row) for row in rows]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
