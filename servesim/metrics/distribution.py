"""Mean and percentiles of weighted values, the method named.

Percentiles interpolate linearly between order statistics, numpy's default and that of vLLM's and
SGLang's benchmark tools: with values sorted ascending, percentile q of n values is the value at
position q/100 · (n − 1). Means use an exact sum, so they do not depend on order or processor.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

PERCENTILE_METHOD = "linear interpolation"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values in ascending order with how often each occurs."""

    values: tuple[float, ...]
    ends: tuple[int, ...]  # running totals of the counts

    @classmethod
    def of(cls, values: Iterable[float]) -> "Distribution":
        """From single values."""
        ordered = tuple(sorted(values))
        return cls(ordered, tuple(range(1, len(ordered) + 1)))

    @classmethod
    def weighted(cls, values: Iterable[float], counts: Iterable[int]) -> "Distribution":
        """From ascending values and how often each occurs."""
        return cls(tuple(values), tuple(accumulate(counts)))

    @property
    def count(self) -> int:
        """How many values there are, repeats included."""
        return self.ends[-1] if self.ends else 0

    def mean(self) -> float:
        """Arithmetic mean; NaN of nothing."""
        if not self.ends:
            return math.nan
        counts = (b - a for a, b in zip((0, *self.ends), self.ends, strict=False))
        total = math.fsum(v * c for v, c in zip(self.values, counts, strict=True))
        return total / self.count

    def percentile(self, q: float) -> float:
        """Percentile `q` in [0, 100] by linear interpolation; NaN of nothing."""
        if not self.ends:
            return math.nan
        position = q / 100 * (self.count - 1)
        below = math.floor(position)
        low = self._at(below)
        part = position - below
        return low if part == 0 else low + (self._at(below + 1) - low) * part

    def _at(self, index: int) -> float:
        low, high = 0, len(self.ends) - 1
        while low < high:
            middle = (low + high) // 2
            if self.ends[middle] > index:
                high = middle
            else:
                low = middle + 1
        return self.values[low]
