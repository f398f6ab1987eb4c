"""Gaps between the tokens of a reply, as they come in runs: collected, and counted at the end.

A run of decode steps gives every one of its requests the same gaps, so it is kept as four
numbers and not as a gap per token.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_RUNS_AT_ONCE = 50_000  # when counting; bounds the memory that takes


class Gaps(Mapping[int, int]):
    """Gap in picoseconds → how often, gaps ascending.

    Attributes:
        values_ps: the different gaps.
        counts: how often each occurs.
    """

    def __init__(self, values_ps: Ints, counts: Ints) -> None:
        self.values_ps, self.counts = _merged(values_ps, counts)

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> "Gaps":
        """From gap → count."""
        values = np.fromiter(counts.keys(), np.int64, len(counts))
        return cls(values, np.fromiter(counts.values(), np.int64, len(counts)))

    def __getitem__(self, gap_ps: int) -> int:
        at = int(np.searchsorted(self.values_ps, gap_ps))
        if at == len(self.values_ps) or self.values_ps[at] != gap_ps:
            raise KeyError(gap_ps)
        return int(self.counts[at])

    def __iter__(self) -> Iterator[int]:
        return iter(self.values_ps.tolist())

    def __len__(self) -> int:
        return len(self.values_ps)

    def __hash__(self) -> int:
        return hash((self.values_ps.tobytes(), self.counts.tobytes()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Gaps):
            return np.array_equal(self.values_ps, other.values_ps) and np.array_equal(
                self.counts, other.counts
            )
        return dict(self) == other


class GapCollector:
    """Takes gaps in, one by one or by the run."""

    def __init__(self) -> None:
        self.single: Counter[int] = Counter()
        self._first, self._increment = array("q"), array("q")
        self._steps, self._requests = array("q"), array("q")

    def add_run(self, first_ps: int, increment_ps: int, steps: int, requests: int) -> None:
        """Gaps first, first + increment, … of `steps` steps, for each of `requests` requests."""
        self._first.append(first_ps)
        self._increment.append(increment_ps)
        self._steps.append(steps)
        self._requests.append(requests)

    def count(self) -> Gaps:
        """All gaps so far."""
        gaps = Gaps.of(self.single)
        for begin in range(0, len(self._first), _RUNS_AT_ONCE):
            part = slice(begin, begin + _RUNS_AT_ONCE)
            first, increment = np.array(self._first[part]), np.array(self._increment[part])
            steps, requests = np.array(self._steps[part]), np.array(self._requests[part])
            begins = np.cumsum(steps) - steps
            step = np.arange(int(steps.sum())) - np.repeat(begins, steps)
            values = np.repeat(first, steps) + np.repeat(increment, steps) * step
            new = Gaps(values, np.repeat(requests, steps))
            gaps = Gaps(
                np.concatenate([gaps.values_ps, new.values_ps]),
                np.concatenate([gaps.counts, new.counts]),
            )
        return gaps


def _merged(values: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Ascending values, equal ones added up."""
    if not len(values):
        return values, counts
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[starts], np.add.reduceat(counts, starts)
