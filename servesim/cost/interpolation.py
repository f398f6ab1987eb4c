"""Tables that are read between their knots, along two axes.

Only + − × ÷ on Python floats. A table that never falls along its axes is never read as falling
either, neither between its knots nor beyond them. Below the first knot of an axis, the table is
read at it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

Row = tuple[float, ...]


def bracket(knots: Sequence[float], x: float) -> tuple[int, int, float]:
    """(lower knot, upper knot, weight of the upper one), by index; the weight may exceed 1."""
    if x <= knots[0]:
        return 0, 0, 0.0
    upper = min(bisect_right(knots, x), len(knots) - 1)
    lower = upper - 1
    return lower, upper, (x - knots[lower]) / (knots[upper] - knots[lower])


def between(a: float, b: float, weight: float) -> float:
    """`a` at weight 0, `b` at 1, and on that line beyond."""
    return a + weight * (b - a)


class Grid:
    """Microseconds over two axes, linear in each.

    Beyond the last knot of an axis the slope of the last two goes on, or a larger one of a smaller
    value on the other axis: lines beyond the table would cross otherwise, and fall along it.
    """

    def __init__(self, xs: Row, ys: Row, us: Sequence[Row]) -> None:
        self._xs, self._ys, self._us = xs, ys, us
        self._x_last, self._y_last = xs[-1], ys[-1]
        width, height = xs[-1] - xs[-2], ys[-1] - ys[-2]
        along_x = ((b - a) / width for a, b in zip(us[-2], us[-1], strict=True))
        self._x_slopes = tuple(accumulate(along_x, max))
        self._y_slopes = tuple(accumulate(((row[-1] - row[-2]) / height for row in us), max))

    def at(self, x: float, y: float) -> float:
        """Microseconds at a point."""
        i, j, wx = bracket(self._xs, min(x, self._x_last))
        k, m, wy = bracket(self._ys, min(y, self._y_last))
        low, high = self._us[i], self._us[j]
        us = self._along_x(i, j, wx, between(low[k], low[m], wy), between(high[k], high[m], wy))
        if y > self._y_last:
            slope = between(self._y_slopes[i], self._y_slopes[j], wx)
            us += (y - self._y_last) * slope
        if x > self._x_last:
            slope = between(self._x_slopes[k], self._x_slopes[m], wy)
            us += (x - self._x_last) * slope
        return us

    def _along_x(self, i: int, j: int, weight: float, low: float, high: float) -> float:
        return between(low, high, weight)


class ChunkGrid(Grid):
    """Attention of one prefill chunk over (new tokens, tokens before them).

    Between two chunk sizes it is the smaller of two readings: linear in the microseconds, which is
    exact for a constant and a term in the chunk, and linear in the microseconds per token, times
    the chunk, which is exact for a term in the chunk and one in its square. Each is too long where
    the other is exact; neither falls, so the smaller one does not either.
    """

    @property
    def least(self) -> float:
        """Microseconds of the smallest call."""
        return self._us[0][0]

    def _along_x(self, i: int, j: int, weight: float, low: float, high: float) -> float:
        first, last = self._xs[i], self._xs[j]
        per_token = between(low / first, high / last, weight)
        return min(between(low, high, weight), per_token * between(first, last, weight))

    def beyond(self, chunk: tuple[int, int], last: tuple[float, float]) -> float:
        """Microseconds by which a chunk takes longer than one cut to `last` on each axis."""
        new, past = chunk
        if new <= last[0] and past <= last[1]:
            return 0.0
        return self.at(new, past) - self.at(min(new, last[0]), min(past, last[1]))
