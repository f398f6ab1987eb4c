"""The setting `intervals`: whether a run reports intervals beside its metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError

ROUNDING = 1e-9  # of a position among replications: 0.05 × 20 is the first one


@dataclass(frozen=True, slots=True)
class Intervals:
    """How the intervals of a run are made; see servesim/app/intervals.py.

    The nth smallest of N values is exceeded by the next one with probability n / (N + 1), so the
    ends of an interval of level L are the values at (1 ± L) / 2 × (N + 1), and N is at least
    2 / (1 - L) - 1: 19 for 0.9.

    Attributes:
        replications: runs with step times that are off; 0 reports no intervals.
        level: probability that an interval holds what is measured.
    """

    replications: int = 0
    level: float = 0.9

    def __post_init__(self) -> None:
        checks.whole("intervals.replications", self.replications)
        if not 0 < checks.number("intervals.level", self.level) < 1:
            raise SettingError("intervals.level", self.level, "must be in (0, 1)")
        if self.replications and self.replications < self.fewest:
            raise SettingError("intervals.replications", self.replications, self._too_few())

    @property
    def tail(self) -> float:
        """Share of runs below an interval, and above."""
        return (1 - self.level) / 2

    @property
    def fewest(self) -> int:
        """Replications of which the outermost two are the ends of an interval."""
        return math.ceil(1 / self.tail - 1 - ROUNDING)

    def _too_few(self) -> str:
        n = self.replications
        lower = f" (or intervals.level={at_most(1 / (n + 1)):g})" if n > 1 else ""
        return f"too few for intervals.level={self.level:g}; nearest: 0 or {self.fewest}{lower}"


def at_most(outermost: float) -> float:
    """The highest level, in thousandths, whose ends are at shares `outermost` and 1 - it."""
    return math.floor((1 - 2 * outermost) * 1000 + ROUNDING) / 1000


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
