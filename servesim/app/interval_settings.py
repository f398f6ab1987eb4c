"""The setting `intervals`: whether a run reports intervals beside its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError


@dataclass(frozen=True, slots=True)
class Intervals:
    """How the intervals of a run are made; see servesim/app/intervals.py.

    Attributes:
        replications: runs with step times that are off; 0 reports no intervals.
        level: share of these runs that an interval holds.
    """

    replications: int = 0
    level: float = 0.9

    def __post_init__(self) -> None:
        checks.whole("intervals.replications", self.replications)
        if self.replications == 1:
            reason = "one run has no spread; nearest: 0, or 20"
            raise SettingError("intervals.replications", 1, reason)
        if not 0 < checks.number("intervals.level", self.level) < 1:
            raise SettingError("intervals.level", self.level, "must be in (0, 1)")


def intervals_of(tree: Mapping[str, Any]) -> Intervals:
    """The settings of a configuration.

    Raises:
        UnknownChoiceError: there is no such setting.
        SettingError: a value is out of range.
    """
    known = tuple(field.name for field in fields(Intervals))
    for key in tree:
        if key not in known:
            raise UnknownChoiceError("setting of intervals", key, known)
    return Intervals(**tree)
