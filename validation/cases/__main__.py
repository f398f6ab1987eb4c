"""`python -m validation.cases source=NAME [file=PATH] [out=DIR]`: public measurements as cases.

`file` is a file of that source, or one with the same columns and other rows; without it, all that
are found under $SERVESIM_DATA are read. `out` is outputs/cases/NAME where it is not given.
"""

import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from servesim.errors import MissingDataError, OutputError, ServesimError, UnknownChoiceError
from validation.cases.case import Case
from validation.cases.converted import Converted
from validation.cases.format import write_case
from validation.data import data_dir

KEYS = ("source", "file", "out")
USAGE = "usage: python -m validation.cases source=NAME [file=PATH] [out=DIR]"
CONVERTERS = Path(__file__).parent / "converters"


class Converter(Protocol):
    """A module of validation/cases/converters."""

    PATTERNS: tuple[str, ...]  # of its files, below the folder of the public data

    def convert(self, path: Path) -> Iterable[Converted]:
        """The cases in a file."""


def main(arguments: list[str]) -> int:
    """0, or 2 after one line on bad input or absent data."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    try:
        for key in given:
            if key not in KEYS:
                raise UnknownChoiceError("argument", key, KEYS)
        if not given.get("source"):
            print(USAGE, file=sys.stderr)
            return 2
        source = given["source"]
        folder = Path(given.get("out") or f"outputs/cases/{source}")
        done = write_all(source, Path(given["file"]) if given.get("file") else None, folder)
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print_summary(source, done, folder)
    return 0


def write_all(source: str, file: Path | None, folder: Path) -> list[Case]:
    """Convert, and write cases and the files beside them.

    Raises:
        UnknownChoiceError: no such source.
        TraceError: a row that cannot be read, by file, line and column.
        OutputError: `folder` cannot be written.
    """
    converter = converter_of(source)
    paths = [file] if file else find(converter.PATTERNS)
    # all is read before any is written: a bad row leaves no half-written folder
    done = list(unique(one for path in paths for one in converter.convert(path)))
    for one in done:
        write_case(one.case, folder)
        for name, text in one.files.items():
            try:
                (folder / name).write_text(text, encoding="utf-8")
            except OSError as error:
                raise OutputError(f"{folder / name}: {error.strerror}") from None
    return [one.case for one in done]


def converter_of(source: str) -> Converter:
    """The module of that name, or UnknownChoiceError."""
    known = sorted(p.stem for p in CONVERTERS.glob("*.py") if p.stem != "__init__")
    if source not in known:
        raise UnknownChoiceError("source", source, known)
    return cast(Converter, importlib.import_module(f"validation.cases.converters.{source}"))


def find(patterns: Iterable[str]) -> list[Path]:
    """A source's own files.

    Raises:
        MissingDataError: there are none.
    """
    folder = data_dir()
    patterns = tuple(patterns)
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    if not paths:
        wanted = ", ".join(patterns)
        raise MissingDataError(f"no {wanted} in {folder}; see validation/sources/README.md")
    return paths


def unique(cases: Iterable[Converted]) -> Iterator[Converted]:
    """The same cases; a name that was there before gets a number."""
    seen: Counter[str] = Counter()
    for one in cases:
        seen[one.case.name] += 1
        times = seen[one.case.name]
        if times == 1:
            yield one
        else:
            yield replace(one, case=replace(one.case, name=f"{one.case.name}_{times}"))


def print_summary(source: str, cases: list[Case], folder: Path) -> None:
    """One line, and one for each reason for which cases are not covered."""
    reasons = Counter(case.not_covered for case in cases if case.not_covered)
    covered = len(cases) - reasons.total()
    print(f"{source}: {len(cases)} cases written to {folder}, {covered} covered")
    others = len({p.stem for p in folder.glob("*.yaml")} - {case.name for case in cases})
    if others:
        print(f"  warning: {others} other cases were there before, and are left")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {count} not covered: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
