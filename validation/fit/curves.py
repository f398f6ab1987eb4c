"""Fits of what depends on one number: dense layers, head, embedding and final norm."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import least_squares, nnls

from validation.fit.rows import HOLD_OUT_EVERY, Mask
from validation.sources.tables import Array

DENSE_KNOTS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048)
HEAD_KNOTS = (1, 16, 64, 128, 192, 256)
TILES = (128, 256)  # rows of the matrix kernels' tiles; the better one is kept
SOFT = 0.02  # relative error from which a residual counts linearly, not squared


def every_fifth(size: int) -> Mask:
    """Inner points that are held out; both ends stay, so that nothing is extrapolated."""
    index = np.arange(size)
    return np.asarray((index % HOLD_OUT_EVERY == 2) & (index < size - 1))


def knots_within(knots: tuple[int, ...], axis: Array) -> Array:
    """The knots inside the measured range, and its ends."""
    inner = [knot for knot in knots if axis[0] < knot < axis[-1]]
    return np.array([axis[0], *inner, axis[-1]])


def fit_curve(axis: Array, us: Array, knots: Array) -> Array:
    """Values at `knots` of a curve that never falls, robust in relative error."""

    def residual(steps: Array) -> Array:
        return np.asarray(np.log(np.interp(axis, knots, np.cumsum(steps)) / us))

    return np.cumsum(_solve(residual, _steps(axis, us, knots), np.inf))


def fit_dense(axis: Array, us: Array) -> tuple[Array, Array, int, float]:
    """Knots, values, tile and tile share of the dense curve (see cost/coefficients.Dense)."""
    knots = knots_within(DENSE_KNOTS, axis)
    best = None
    for tile in TILES:
        whole = np.ceil(axis / tile) * tile

        def residual(x: Array, tile: int = tile, whole: Array = whole) -> Array:
            at = np.where(axis > tile, axis + x[-1] * (whole - axis), axis)
            return np.asarray(np.log(np.interp(at, knots, np.cumsum(x[:-1])) / us))

        start = np.append(_steps(axis, us, knots), 0.5)
        x = _solve(residual, start, np.append(np.full(len(knots), np.inf), 1.0))
        error = float(np.mean(np.abs(residual(x))))
        if best is None or error < best[0]:
            best = (error, np.cumsum(x[:-1]), tile, float(x[-1]))
    if best is None:
        raise RuntimeError("no tile to try")  # TILES is a constant and not empty
    return knots, best[1], best[2], best[3]


def fit_line(axis: Array, us: Array) -> tuple[float, float]:
    """Intercept and slope, both at least 0, by relative error."""
    matrix = np.column_stack([1 / us, axis / us])
    (intercept, slope), _ = nnls(matrix, np.ones_like(us))
    return float(intercept), float(slope)


def _steps(axis: Array, us: Array, knots: Array) -> Array:
    at_knots = np.interp(knots, axis, us)
    return np.concatenate([at_knots[:1], np.maximum(np.diff(at_knots), 1e-3)])


def _solve(residual: Callable[[Array], Array], start: Array, upper: float | Array) -> Array:
    fit = least_squares(
        residual,
        start,
        bounds=(0.0, upper),
        loss="soft_l1",
        f_scale=SOFT,
        x_scale=np.maximum(start, 1e-3),
    )
    return np.asarray(fit.x)
