"""How far arrivals are from Poisson: at a glance, and apart from slow changes of the rate."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gap_cv(arrivals_s: Floats) -> float:
    """Coefficient of variation of the gaps; 1 for Poisson."""
    gaps = np.diff(arrivals_s)
    return float(gaps.std() / gaps.mean())


def local_gap_cv(arrivals_s: Floats, window: int = 50) -> float:
    """The same, each gap relative to the mean of the `window` gaps around it.

    A rate that drifts over minutes raises `gap_cv` without any request coming in a burst. This
    leaves the drift out. A Poisson process gives √((window−1)/(window+1)), 0.98 for 50.
    """
    gaps = np.diff(arrivals_s)
    sums = np.concatenate(([0.0], np.cumsum(gaps)))
    means = (sums[window:] - sums[:-window]) / window
    first = window // 2
    relative = gaps[first : first + len(means)] / means
    return float(relative.std() / relative.mean())
