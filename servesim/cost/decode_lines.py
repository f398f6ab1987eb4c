"""Attention of decodes in whole picoseconds, as lines over the total context.

A run of decodes is a progression if its steps grow by whole picoseconds. So attention is computed
at multiples of a power of two of tokens, rounded down there to a quantum, and linear between them:
with a cell no wider than the quantum, slopes are whole. Rounding and interpolating so keep the
order of any two tables: what never falls before never falls after. The quantum is 16 ns, of a step
of milliseconds; cells are a sixteenth to an eighth of the context, at most 16,384 tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

from servesim.units import PS_PER_US

_QUANTUM_BITS = 14
_QUANTUM_PS = 1 << _QUANTUM_BITS
_QUANTA_PER_US = PS_PER_US / _QUANTUM_PS
_CELLS_BITS = 4  # of a context's own bits, how many its cell does not have


class Line(NamedTuple):
    """base + slope · context, for contexts up to `until`."""

    base_ps: int
    slope_ps: int
    until: int


class Lines:
    """The lines of one function of the context in microseconds; each is computed once."""

    def __init__(self, us_at: Callable[[int], float]) -> None:
        self._us_at = us_at
        self._lines: dict[int, Line] = {}

    def at(self, context: int) -> Line:
        """The line on which `context` tokens lie."""
        bits = context.bit_length() - _CELLS_BITS
        if bits > _QUANTUM_BITS:
            bits = _QUANTUM_BITS
        start = context >> bits << bits if bits > 0 else context
        line = self._lines.get(start)
        if line is None:
            line = self._lines[start] = self._line(start, 1 << bits if bits > 0 else 1)
        return line

    def _line(self, start: int, width: int) -> Line:
        first = int(self._us_at(start) * _QUANTA_PER_US)
        last = int(self._us_at(start + width) * _QUANTA_PER_US)
        slope_ps = (last - first) * (_QUANTUM_PS // width)
        return Line(first * _QUANTUM_PS - slope_ps * start, slope_ps, start + width)
