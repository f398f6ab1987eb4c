"""Tables over doubling axes: repair, reading between the points, and the order that times have."""

import numpy as np

from validation.sources.tables import Array

SPIKE = 1.1  # times what the next larger call takes: no kernel does that, so the measurement did


def despiked(axis: Array, us: Array) -> Array:
    """Times that exceed that of the next larger point, replaced by a line in logarithms.

    `us` may have gaps (NaN); its last dimension runs along `axis`.
    """
    repaired = us.copy()
    x = np.log(axis)
    for row in repaired.reshape(-1, us.shape[-1]):
        known = np.flatnonzero(np.isfinite(row))
        for left, middle, right in zip(known, known[1:], known[2:], strict=False):
            if row[middle] > SPIKE * row[right] and row[right] >= row[left]:
                ends = [left, right]
                row[middle] = np.exp(np.interp(x[middle], x[ends], np.log(row[ends])))
    return repaired


def never_falling(us: Array) -> Array:
    """The mean of the highest so far and the lowest to come, along every axis; gaps stay."""
    gaps = np.isnan(us)
    for axis in range(us.ndim):
        above = np.maximum.accumulate(np.where(gaps, -np.inf, us), axis)
        backwards = np.flip(np.where(gaps, np.inf, us), axis)
        below = np.flip(np.minimum.accumulate(backwards, axis), axis)
        us = np.where(gaps, np.nan, np.add(above, below, where=~gaps, out=np.zeros_like(us)) / 2)
    return us


def read(axis: Array, us: Array, wanted: Array) -> Array:
    """One row at `wanted`, by lines in logarithms; its gaps (NaN) are not read.

    Beyond its ends the last slope goes on, but nothing gets faster.
    """
    known = np.isfinite(us)
    x, y, to = np.log(axis[known]), np.log(us[known]), np.log(wanted)
    right = np.clip(np.searchsorted(x, to), 1, len(x) - 1)
    left = right - 1
    slope = (y[right] - y[left]) / (x[right] - x[left])
    outside = (to < x[0]) | (to > x[-1])
    slope = np.where(outside, np.maximum(slope, 0.0), slope)
    return np.asarray(np.exp(y[left] + slope * (to - x[left])))
