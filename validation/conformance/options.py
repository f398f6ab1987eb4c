"""Arguments of the two commands that need an installed vLLM: `release=0.33 seeds=0:2000 ...`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from servesim.errors import SettingError, UnknownChoiceError
from validation.conformance.workloads import RELEASES

_NAMES = ("release", "seeds", "out")


@dataclass(frozen=True, slots=True)
class Options:
    """Which scenarios to run, and where the traces go, if anywhere."""

    release: str
    seeds: range
    out: Path | None


def parse(arguments: Iterable[str]) -> Options:
    """The options among the arguments, each `name=value`.

    Raises:
        UnknownChoiceError: a name or a release is none of the known ones.
        SettingError: the seeds are no range.
    """
    given = dict(argument.partition("=")[::2] for argument in arguments)
    for name in given:
        if name not in _NAMES:
            raise UnknownChoiceError("argument", name, _NAMES)
    release = given.get("release", RELEASES[-1])
    if release not in RELEASES:
        raise UnknownChoiceError("release", release, RELEASES)
    out = Path(given["out"]) if given.get("out") else None
    return Options(release, _seeds(given.get("seeds", "0:200")), out)


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    if first.isdecimal() and end.isdecimal() and int(first) < int(end):
        return range(int(first), int(end))
    raise SettingError("seeds", text, "must be first:end, such as 0:200")
