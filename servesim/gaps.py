"""Gaps between the tokens of a reply, counted."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


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


def _merged(values: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Ascending values, equal ones added up."""
    if not len(values):
        return values, counts
    order = np.argsort(values, kind="stable")
    values, counts = values[order], counts[order]
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[starts], np.add.reduceat(counts, starts)
