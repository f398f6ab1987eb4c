"""Fits of length laws: quantile tables with as few points as a stated KS distance needs."""

import numpy as np
from numpy.typing import NDArray

from servesim.workload.lengths import LogNormal, Quantiles, QuantilesByPrompt

Ints = NDArray[np.int64]

# A law is compared through its values at this many evenly spaced ranks: 1e-5 in KS.
NUM_RANKS = 100_000
RANKS = (np.arange(NUM_RANKS) + 0.5) / NUM_RANKS

# Always in the table, so that the middle and the tail that users quote are met.
ANCHORS = (0.5, 0.9, 0.99, 0.999)


def ks(values: Ints, others: Ints) -> float:
    """Greatest distance between the distribution functions of two samples."""
    return float(np.abs(_gaps(np.unique(values), values, others)).max())


def _gaps(at: Ints, values: Ints, others: Ints) -> NDArray[np.float64]:
    return _cdf(values, at) - _cdf(others, at)


def _cdf(values: Ints, at: Ints) -> NDArray[np.float64]:
    return np.searchsorted(np.sort(values), at, side="right") / len(values)


def fit_quantiles(values: Ints, max_ks: float) -> Quantiles:
    """Few points, greedily: add the worst one until the KS distance is at most `max_ks`.

    Shares are rounded to thousandths; where two points would get the same one, the first stays.
    """
    ordered, distinct = np.sort(values), np.unique(values)
    points = {0.0: int(ordered[0]) - 1, 1.0: int(ordered[-1])}
    for anchor in ANCHORS:
        value = int(ordered[int(anchor * len(ordered))])
        points.setdefault(_share(ordered, value), value)
    while True:
        law = Quantiles(sorted(points.items()))
        gaps = np.abs(_gaps(distinct, values, law.at(RANKS)))
        new = (
            (_share(ordered, value), value)
            for value in (int(distinct[i]) for i in np.argsort(-gaps) if gaps[i] > max_ks)
        )
        found = next((point for point in new if point[0] not in points), None)
        if found is None:
            return law
        points[found[0]] = found[1]


def _share(ordered: Ints, value: int) -> float:
    """Share of at most `value`, to thousandths."""
    return round(float(np.searchsorted(ordered, value, side="right") / len(ordered)), 3)


def fit_lognormal(values: Ints) -> LogNormal:
    """Maximum likelihood of the untruncated law, truncated to the values seen."""
    logs = np.log(values)
    return LogNormal(
        sigma=float(logs.std()),
        median_tokens=float(np.exp(logs.mean())),
        min_tokens=int(values.min()),
        max_tokens=int(values.max()),
    )


def fit_by_prompt(
    prompts: Ints, outputs: Ints, num_ranges: int, max_ks: float
) -> QuantilesByPrompt:
    """A table of replies for each of `num_ranges` ranges of prompts, cut where replies change."""
    bounds = prompt_bounds(prompts, outputs, num_ranges)
    which = np.searchsorted(np.asarray(bounds, dtype=np.int64), prompts)
    laws = [fit_quantiles(outputs[which == i], max_ks) for i in range(num_ranges)]
    return QuantilesByPrompt(bounds, [law.points for law in laws])


def prompt_bounds(prompts: Ints, outputs: Ints, num_ranges: int) -> list[int]:
    """Bounds between ranges of prompts, each cut the one that best separates mean replies.

    The regression tree of Breiman et al. (1984) on one variable; a range keeps 1 % of the rows.
    """
    bounds: list[int] = []
    least = max(1, len(prompts) // 100)
    for _ in range(num_ranges - 1):
        which = np.searchsorted(np.asarray(bounds, dtype=np.int64), prompts)
        parts = (which == i for i in range(len(bounds) + 1))
        cuts = [_best_cut(prompts[part], outputs[part], least) for part in parts]
        bounds = sorted([*bounds, max(cuts)[1]])
    return bounds


def _best_cut(prompts: Ints, outputs: Ints, least: int) -> tuple[float, int]:
    """The cut that lowers the squared error most, by how much and after which prompt length."""
    if len(prompts) < 2 * least:
        return -1.0, 0
    order = np.argsort(prompts, kind="stable")
    prompts, sums = prompts[order], np.cumsum(outputs[order], dtype=np.float64)
    n, left = len(prompts), np.arange(1, len(prompts))
    gain = sums[:-1] ** 2 / left + (sums[-1] - sums[:-1]) ** 2 / (n - left) - sums[-1] ** 2 / n
    allowed = (prompts[1:] != prompts[:-1]) & (left >= least) & (left <= n - least)
    gain = np.where(allowed, gain, -1.0)
    best = int(np.argmax(gain))
    return float(gain[best]), int(prompts[best])
