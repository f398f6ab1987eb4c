"""Levels of a few replications: each once, correlated as asked; and bounds that hold their level.

Coverage is known in closed form where the figures are normal: a bound x holds Φ(x ÷ σ) of them.
"""

import math
from statistics import NormalDist, correlation, mean

import pytest

from servesim.app.interval_levels import bounds, pairs

NORMAL = NormalDist()


@pytest.mark.parametrize("n", [3, 19, 40])
@pytest.mark.parametrize("correlated", [-1.0, -0.5, 0.0, 0.7, 1.0])
def test_each_level_is_there_once(n: int, correlated: float) -> None:
    levels = [(i + 1) / (n + 1) for i in range(n)]
    for side in zip(*pairs(n, correlated, 0.3), strict=True):
        assert sorted(side) == levels


def test_pairs_of_three_by_hand() -> None:
    """The lattice is 0, 0.618, 0.236: the second of the levels goes with the highest."""
    assert pairs(3, 0.0, 0.0) == [(0.25, 0.25), (0.5, 0.75), (0.75, 0.5)]
    assert pairs(3, 1.0, 0.0) == [(0.25, 0.25), (0.5, 0.5), (0.75, 0.75)]
    assert pairs(3, -1.0, 0.0) == [(0.25, 0.75), (0.5, 0.5), (0.75, 0.25)]


@pytest.mark.parametrize("correlated", [-0.5, 0.0, 0.5])
def test_the_correlation_is_about_what_was_asked_for(correlated: float) -> None:
    def measured(shift: float) -> float:
        found = pairs(39, correlated, shift)
        decode, prefill = ([NORMAL.inv_cdf(level) for level in s] for s in zip(*found, strict=True))
        return correlation(decode, prefill)

    assert mean(measured(i / 50) for i in range(50)) == pytest.approx(correlated, abs=0.05)


def test_bounds_by_hand() -> None:
    nineteen = [float(i) for i in range(1, 20)]
    assert bounds(nineteen, 0.05) == (1.0, 19.0)  # the first of 19, and the last
    assert bounds(nineteen, 0.25) == (5.0, 15.0)
    assert bounds(nineteen, 0.06) == pytest.approx((1.2, 18.8))  # 0.06 × 20 = 1.2
    assert bounds([3.0, 1.0, 2.0], 0.25) == (1.0, 3.0)


def coverage(decode: float, prefill: float, correlated: float, n: int, shift: float) -> float:
    """Of a figure that is a sum of two normal ones, by an interval of level 0.9."""
    figures = [
        decode * NORMAL.inv_cdf(d) + prefill * NORMAL.inv_cdf(p)
        for d, p in pairs(n, correlated, shift)
    ]
    sigma = math.sqrt(decode**2 + prefill**2 + 2 * correlated * decode * prefill)
    low, high = bounds(figures, 0.05)
    return NORMAL.cdf(high / sigma) - NORMAL.cdf(low / sigma)


@pytest.mark.parametrize("n", [19, 39, 59])
def test_what_one_factor_decides_is_held_exactly(n: int) -> None:
    assert coverage(1.0, 0.0, 0.4, n, 0.2) == pytest.approx(0.9, abs=1e-9)
    assert coverage(0.0, 1.0, 0.4, n, 0.7) == pytest.approx(0.9, abs=1e-9)


@pytest.mark.parametrize("correlated", [-0.3, 0.0, 0.5])
@pytest.mark.parametrize("prefill", [0.3, 1.0])
def test_what_both_decide_is_held_on_average(correlated: float, prefill: float) -> None:
    held = [coverage(1.0, prefill, correlated, 19, i / 200) for i in range(200)]
    assert mean(held) == pytest.approx(0.9, abs=0.03)


def test_few_replications_do_not_hold_too_little() -> None:
    """The quantiles of a sample at 5 and 95 % would hold 74 % with 10 values, and 82 % with 19."""
    for n in (19, 25, 39):
        held = mean(coverage(1.0, 0.5, 0.2, n, i / 50) for i in range(50))
        assert held > 0.87
