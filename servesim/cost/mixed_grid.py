"""Attention of one call that holds a prefill chunk beside decodes, over four axes."""

from collections.abc import Sequence

from servesim.cost.decode_grid import DecodeGrid
from servesim.cost.interpolation import Row, between, bracket

Plane = Sequence[Row]


class MixedGrid:
    """Linear in the chunk's new tokens and those before them; of decodes see `DecodeGrid`.

    Args:
        chunks: knots of new tokens, increasing.
        pasts: knots of tokens before them.
        decodes: knots of their number, and of their mean context.
        us: microseconds, [chunk][past][seqs][context], falling along no axis.

    Attributes:
        last: the largest chunk and past; those beyond are read at it.
    """

    def __init__(
        self, chunks: Row, pasts: Row, decodes: tuple[Row, Row], us: Sequence[Sequence[Plane]]
    ) -> None:
        seqs, contexts = decodes
        self._chunks, self._pasts = chunks, pasts
        self._one_measured = seqs[0] == 1
        self._grids = _grids(seqs, contexts, us)
        self.last = chunks[-1], pasts[-1]

    def at(self, chunk: tuple[int, int], decodes: tuple[int, int, int]) -> float:
        """Microseconds of the call; no less than with the longest decode only.

        Args:
            chunk: new tokens, tokens before them.
            decodes: how many are beside it, their context together, and that of the longest.
        """
        seqs, context, longest = decodes
        us = self._at(chunk, seqs, context)
        return max(us, self._at(chunk, 1, longest)) if self._one_measured else us

    def _at(self, chunk: tuple[int, int], seqs: int, context: int) -> float:
        i, j, wx = bracket(self._chunks, min(chunk[0], self.last[0]))
        k, m, wy = bracket(self._pasts, min(chunk[1], self.last[1]))
        grids = self._grids
        low, lower = grids[i][k].at(seqs, context), grids[i][m].at(seqs, context)
        high, higher = grids[j][k].at(seqs, context), grids[j][m].at(seqs, context)
        return between(between(low, lower, wy), between(high, higher, wy), wx)


def _grids(seqs: Row, contexts: Row, us: Sequence[Sequence[Plane]]) -> list[list[DecodeGrid]]:
    """Decodes beside each chunk and past.

    Beyond the table, their slopes are at least those beside smaller chunks and shorter pasts, or
    lines would cross and the call get shorter with a longer chunk.
    """
    end = 2 * contexts[-1]
    seqs_step, context_step = seqs[-1] - seqs[-2], contexts[-1] - contexts[-2]
    grids: list[list[DecodeGrid]] = []
    above: list[list[float]] = []  # slopes of each past, beside the chunk before
    for planes in us:
        along: list[list[float]] = []
        row: list[DecodeGrid] = []
        for k, plane in enumerate(planes):
            slopes = [(us[-1] - us[-2]) / context_step for us in plane]
            slopes.append((plane[-1][0] - plane[-2][0]) / seqs_step)
            for smaller in (*along[-1:], *above[k : k + 1]):
                slopes = [max(pair) for pair in zip(slopes, smaller, strict=True)]
            along.append(slopes)
            *of_context, further_us = slopes
            longer = [
                (*us, us[-1] + slope * (end - contexts[-1]))
                for us, slope in zip(plane, of_context, strict=True)
            ]
            row.append(DecodeGrid(seqs, (*contexts, end), longer, further_us))
        grids.append(row)
        above = along
    return grids
