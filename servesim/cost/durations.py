"""How long the steps of a run take, one after another, in whole picoseconds.

A run is a number of decode steps of the same requests. Where a step's time grows by a constant
from one to the next, sums and their inverse have a closed form; otherwise they are listed.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol


class Durations(Protocol):
    """Durations of steps 0, 1, … `steps` − 1 of a run.

    Attributes:
        steps: how many steps are covered; at least one.
        outside: axes on which all of them lie outside the fitted range.
    """

    @property
    def steps(self) -> int:
        """How many steps are covered."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Axes on which all of these steps lie outside the fitted range."""

    def total(self, steps: int) -> int:
        """Duration of the first `steps` steps together."""

    def at(self, step: int) -> int:
        """Duration of one step."""

    def steps_until(self, elapsed_ps: int) -> int:
        """Fewest steps, at least one, that take `elapsed_ps` or longer; at most `steps`."""

    def progressions(self, steps: int) -> Iterable[tuple[int, int, int]]:
        """The first `steps` steps as (first, increment, count), one after another."""


@dataclass(slots=True)
class Progression:
    """Step j takes first_ps + j · increment_ps; not frozen, as one is made for every run."""

    first_ps: int
    increment_ps: int
    steps: int
    outside: tuple[str, ...] = ()

    def total(self, steps: int) -> int:
        """Closed form of the sum."""
        return steps * self.first_ps + self.increment_ps * (steps * (steps - 1) // 2)

    def at(self, step: int) -> int:
        """First duration plus the increments so far."""
        return self.first_ps + step * self.increment_ps

    def progressions(self, steps: int) -> Iterable[tuple[int, int, int]]:
        """One."""
        return ((self.first_ps, self.increment_ps, steps),)

    def steps_until(self, elapsed_ps: int) -> int:
        """Root of the quadratic in floats, put right in integers."""
        if elapsed_ps <= 0:
            return 1
        first, increment, most = self.first_ps, self.increment_ps, self.steps
        linear = first - increment / 2
        root = math.sqrt(linear * linear + 2.0 * increment * elapsed_ps)
        steps = int(2.0 * elapsed_ps / (linear + root)) + 1
        if steps > most:
            steps = most
        # twice the `total`, written out, as every arrival asks this
        twice_first, twice_elapsed = 2 * first, 2 * elapsed_ps
        while steps < most and steps * (twice_first + increment * (steps - 1)) < twice_elapsed:
            steps += 1
        while steps > 1 and (steps - 1) * (twice_first + increment * (steps - 2)) >= twice_elapsed:
            steps -= 1
        return steps


class Listed:
    """Durations one by one."""

    def __init__(self, durations_ps: list[int], outside: tuple[str, ...] = ()) -> None:
        self._durations = durations_ps
        self._ends = list(accumulate(durations_ps, initial=0))
        self.steps = len(durations_ps)
        self.outside = outside

    def total(self, steps: int) -> int:
        """Prefix sum."""
        return self._ends[steps]

    def at(self, step: int) -> int:
        """Looked up."""
        return self._durations[step]

    def progressions(self, steps: int) -> Iterable[tuple[int, int, int]]:
        """One for each step."""
        return ((duration, 0, 1) for duration in self._durations[:steps])

    def steps_until(self, elapsed_ps: int) -> int:
        """Bisection of the prefix sums."""
        return min(max(bisect_left(self._ends, elapsed_ps), 1), self.steps)


def longer(one: tuple[int, int], other: tuple[int, int], steps: int) -> tuple[int, int, int]:
    """Of two (first, increment) the longer one, and for how many of `steps` it stays that."""
    if one < other:
        one, other = other, one
    behind, gain = one[0] - other[0], other[1] - one[1]
    if gain > 0:
        steps = min(steps, behind // gain + 1)
    return *one, steps
