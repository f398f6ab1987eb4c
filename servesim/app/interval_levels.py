"""At which levels of two distributions a few replications stand, and the bounds of their figures.

A replication is a whole simulation, so the levels are spread instead of drawn: either distribution
is looked at once at each of 1/(n + 1) … n/(n + 1), and the pairs are a lattice of the golden ratio,
moved by the run's seed, so that they fill the square. Where one of the two decides a figure, its
order is that of the levels, and its bounds do not scatter at all. Where both do, 19 replications
hold 88 to 91 % at level 0.9 on average over seeds (figures that are sums of two normal ones, of
correlation -0.3 to 0.5), with a standard deviation of 3 to 4 % where independent draws have 6 to 7.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

from servesim.app.interval_settings import ROUNDING

GOLDEN = (math.sqrt(5) - 1) / 2
DIGITS = 9  # kept of what is put in order, so that every machine has the same order
_NORMAL = NormalDist()


def pairs(n: int, correlation: float, shift: float) -> list[tuple[float, float]]:
    """Pairs of levels, n of them, each level of either once.

    Args:
        n: how many.
        correlation: of their normal scores, -1 … 1.
        shift: of the lattice, 0 … 1.
    """
    levels = [(i + 1) / (n + 1) for i in range(n)]
    scores = [_NORMAL.inv_cdf(level) for level in levels]
    lattice = _ranks([(i * GOLDEN + shift) % 1 for i in range(n)])
    rest = math.sqrt(1 - correlation**2)
    mixed = [correlation * scores[i] + rest * scores[lattice[i]] for i in range(n)]
    return [(levels[i], levels[rank]) for i, rank in enumerate(_ranks(mixed))]


def normal_scores(values: Sequence[float]) -> list[float]:
    """The normal quantile at rank / (n + 1) of each of n values."""
    return [_NORMAL.inv_cdf((rank + 1) / (len(values) + 1)) for rank in _ranks(values)]


def bounds(values: Sequence[float], tail: float) -> tuple[float, float]:
    """The values at positions tail × (n + 1) from below and from above, linear between two.

    Args:
        values: n of them, of which the outermost are no further in than that.
        tail: probability of a value below the interval, and of one above.
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    position = max(tail * (len(ordered) + 1) - 1, 0.0)
    whole = math.floor(position + ROUNDING)
    share = max(position - whole, 0.0)
    inner = min(whole + 1, last)
    low = ordered[whole] + share * (ordered[inner] - ordered[whole])
    high = ordered[last - whole] - share * (ordered[last - whole] - ordered[last - inner])
    return low, high


def _ranks(values: Sequence[float]) -> list[int]:
    """How many of the others come before each; equal ones in their own order."""
    order = sorted(range(len(values)), key=lambda i: (round(values[i], DIGITS), i))
    ranks = [0] * len(values)
    for rank, i in enumerate(order):
        ranks[i] = rank
    return ranks
