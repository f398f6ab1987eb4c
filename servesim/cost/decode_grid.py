"""Attention of decodes as a function of their number and of their context together.

Measured at (sequences, mean context). Decode attention reads every sequence's KV once, so calls
of the same total context take about the same time however many sequences share it. Between two
measured numbers of sequences, both rows are therefore read at the same total, not at the same
mean: a long conversation beside short ones counts with what it reads, and where kernels change
their pace with the size of what they read (a cache that overflows), both rows do so at once.

A row never falls with the context. From one row to the next, calls of the same total may get
shorter: few sequences can leave multiprocessors idle, or fill them unevenly. That is measured, and
left so.
"""

from collections.abc import Sequence

from servesim.cost.coefficients import Curve
from servesim.cost.interpolation import Row, between, bracket


class DecodeGrid:
    """Microseconds over (sequences, tokens of context of all of them).

    Beyond a row, its last slope goes on. Of more sequences than measured each costs what the last
    ones do at the shortest contexts, where it is not the price of their KV.

    Args:
        seqs: increasing.
        contexts: mean tokens of context per sequence, increasing, two or more.
        rows: for each of `seqs`, microseconds at the first of `contexts`, as many as were
            measured (two or more), never falling.
        further_us: of each sequence beyond the last of `seqs`; None for as above.
    """

    def __init__(
        self, seqs: Row, contexts: Row, rows: Sequence[Row], further_us: float | None = None
    ) -> None:
        self._seqs = seqs
        if further_us is None:
            further_us = (rows[-1][0] - rows[-2][0]) / (seqs[-1] - seqs[-2])
        self._further_us = further_us
        self._curves = [
            Curve(tuple(n * context for context in contexts[: len(us)]), us)
            for n, us in zip(seqs, rows, strict=True)
        ]

    def at(self, seqs: int, context: int) -> float:
        """Microseconds of `seqs` sequences with `context` tokens together."""
        lower, upper, weight = bracket(self._seqs, seqs)
        low, high = self._curves[lower], self._curves[upper]
        if weight > 1:
            return high.at(context) + (seqs - self._seqs[-1]) * self._further_us
        return between(low.at(context), high.at(context), weight)
