"""Arguments of the commands that step an installed engine: `release=0.33 seeds=0:2000 ...`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from servesim.errors import ServesimError, SettingError, UnknownChoiceError
from validation.conformance.workloads import RELEASES

_NAMES = ("release", "seeds", "out")


@dataclass(frozen=True, slots=True)
class Options:
    """Which scenarios to run, and where the traces go, if anywhere."""

    release: str
    seeds: range
    out: Path | None


def parse(arguments: Iterable[str]) -> Options:
    """The options of the commands for vLLM, each `name=value`.

    Raises:
        UnknownChoiceError: a name or a release is none of the known ones.
        SettingError: the seeds are no range.
    """
    given = _named(arguments, _NAMES)
    release = given.get("release", RELEASES[-1])
    if release not in RELEASES:
        raise UnknownChoiceError("release", release, RELEASES)
    out = Path(given["out"]) if given.get("out") else None
    return Options(release, _seeds(given.get("seeds", "0:200")), out)


def parse_live(arguments: Iterable[str]) -> tuple[range, Path | None] | None:
    """Seeds, and where the traces go, if anywhere: `seeds=0:500 record=FILE`; None if malformed."""
    try:
        given = _named(arguments, ("seeds", "record"))
        seeds = _seeds(given.get("seeds", "0:500"))
    except ServesimError:
        return None
    return seeds, Path(given["record"]) if given.get("record") else None


def _named(arguments: Iterable[str], names: tuple[str, ...]) -> dict[str, str]:
    given = dict(argument.partition("=")[::2] for argument in arguments)
    for name in given:
        if name not in names:
            raise UnknownChoiceError("argument", name, names)
    return given


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    if first.isdecimal() and end.isdecimal() and int(first) < int(end):
        return range(int(first), int(end))
    raise SettingError("seeds", text, "must be first:end, such as 0:200")
