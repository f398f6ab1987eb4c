"""The search: robust least squares over log ratios, by forward differences.

A simulated figure is a step function of its parameters on the smallest scale, since a delay moves a
request from one batch into the next. Differences are therefore taken over a tenth of a parameter's
typical size, which many batches average.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from validation.calibrate.parameters import Parameter, Values
from validation.calibrate.runs import Residual

STEP = 0.1  # of a parameter's typical size
SOFT = 0.05  # relative error from which a residual counts linearly, not squared
MOST_EVALUATIONS = 8

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Evaluate = Callable[[Values], Sequence[Residual]]


@dataclass(frozen=True, slots=True)
class Found:
    """Outcome of a search.

    Attributes:
        values: parameter → value.
        residuals: of the cases that were tuned on, at these values.
    """

    values: dict[str, float]
    residuals: tuple[Residual, ...]


def search(parameters: Sequence[Parameter], evaluate: Evaluate) -> Found:
    """Values with the lowest robust loss.

    Args:
        parameters: that are free.
        evaluate: residuals of all cases at some values, always in the same order.
    """
    scale = np.array([p.typical for p in parameters])
    seen: dict[tuple[float, ...], Sequence[Residual]] = {}

    def named(x: Array) -> dict[str, float]:
        return {p.name: float(v) for p, v in zip(parameters, x * scale, strict=True)}

    def at(x: Array) -> Array:
        key = tuple(x.tolist())
        if key not in seen:
            seen[key] = evaluate(named(x))
        return np.array([residual.log_ratio for residual in seen[key]])

    def slope(x: Array) -> Array:
        here = at(x)
        return np.column_stack([(at(x + STEP * unit) - here) / STEP for unit in np.eye(len(x))])

    fit = least_squares(
        at,
        np.array([p.start for p in parameters]) / scale + 1e-6,
        jac=slope,
        bounds=(0.0, np.array([p.most for p in parameters]) / scale + STEP),
        loss="soft_l1",
        f_scale=SOFT,
        max_nfev=MOST_EVALUATIONS,
        xtol=1e-3,
        ftol=1e-4,
    )
    at(fit.x)
    return Found(named(fit.x), tuple(seen[tuple(fit.x.tolist())]))
