"""Errors of predictions: signed shares of what was measured, and what a group of them comes to."""

import math
from collections.abc import Sequence

from servesim.metrics.distribution import Distribution


def relative_error(simulated: float, measured: float) -> float:
    """Signed error as a share of what was measured; NaN where that is 0 and the prediction not."""
    if measured == 0:
        return 0.0 if simulated == 0 else math.nan
    return (simulated - measured) / measured


def spread(signed: Sequence[float]) -> dict[str, float]:
    """n, median and p90 of |error|, mean signed error and worst |error|; NaN of nothing."""
    sizes = Distribution.of(abs(error) for error in signed)
    return {
        "n": len(signed),
        "median": sizes.percentile(50),
        "p90": sizes.percentile(90),
        "mean_signed": math.fsum(signed) / len(signed) if signed else math.nan,
        "worst": sizes.percentile(100),
    }
