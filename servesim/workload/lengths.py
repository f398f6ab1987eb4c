"""Laws of prompt and reply lengths, in tokens, as inverse distribution functions.

A law maps a uniform number to a length and draws nothing itself. So one seed under two laws gives
each request the same rank in both (common random numbers), and a law is tested without a seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from servesim import checks
from servesim.errors import SettingError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Below this share inside the bounds, the normal tail has too few digits left to be inverted.
LEAST_MASS = 1e-9


@runtime_checkable
class Lengths(Protocol):
    """A law of lengths; fits prompts and replies."""

    def at(self, u: Floats) -> Ints:
        """Lengths of at least 1 at the ranks `u` in [0, 1); never falling in u."""


@runtime_checkable
class RepliesByPrompt(Protocol):
    """A law of reply lengths that looks at the prompt's length."""

    def at_given(self, u: Floats, prompt_tokens: Ints) -> Ints:
        """Reply lengths at the ranks `u` within those of prompts of `prompt_tokens`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always `tokens` tokens."""

    tokens: int

    def __post_init__(self) -> None:
        checks.whole("tokens", self.tokens, at_least=1)

    def at(self, u: Floats) -> Ints:
        """The one length."""
        return np.full(len(u), self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Each whole number from `min_tokens` to `max_tokens` equally often, both included."""

    min_tokens: int
    max_tokens: int

    def __post_init__(self) -> None:
        _check_bounds(self.min_tokens, self.max_tokens)

    def at(self, u: Floats) -> Ints:
        """Lengths at the ranks `u`."""
        width = self.max_tokens - self.min_tokens + 1
        return np.minimum(self.min_tokens + (u * width).astype(np.int64), self.max_tokens)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp of a normal number, truncated to the bounds and rounded to whole tokens.

    `median_tokens`, `mean_tokens` and `sigma` describe the law before truncation, in which
    mean = median · exp(sigma²/2). Truncated means redrawn within the bounds, not moved onto them,
    so no mass gathers at a bound.

    Attributes:
        sigma: standard deviation of the logarithm.
        median_tokens: median, or null where the mean is given.
        mean_tokens: mean, or null where the median is given.
        min_tokens: least length.
        max_tokens: greatest length.
    """

    sigma: float
    median_tokens: float | None = None
    mean_tokens: float | None = None
    min_tokens: int = 1
    max_tokens: int = 131_072

    def __post_init__(self) -> None:
        _check_bounds(self.min_tokens, self.max_tokens)
        checks.positive("sigma", self.sigma)
        given = {"median_tokens": self.median_tokens, "mean_tokens": self.mean_tokens}
        for name, value in given.items():
            if value is not None:
                checks.positive(name, value)
        if (self.median_tokens is None) == (self.mean_tokens is None):
            raise SettingError("median_tokens", self.median_tokens, "give this or mean_tokens")
        low, high = self._mass()
        if high - low < LEAST_MASS:
            reason = f"the law has next to nothing in [{self.min_tokens}, {self.max_tokens}] tokens"
            raise SettingError("max_tokens", self.max_tokens, reason)

    @property
    def log_mean(self) -> float:
        """Mean of the logarithm."""
        if self.mean_tokens is not None:
            return math.log(self.mean_tokens) - self.sigma**2 / 2
        return math.log(self.median_tokens or 1)

    def _mass(self) -> tuple[float, float]:
        # Half a token more on each side, because lengths are rounded to the nearest.
        ends = (math.log(self.min_tokens - 0.5), math.log(self.max_tokens + 0.5))
        low, high = (float(ndtr((end - self.log_mean) / self.sigma)) for end in ends)
        return low, high

    def at(self, u: Floats) -> Ints:
        """Lengths at the ranks `u` of the truncated law."""
        low, high = self._mass()
        lengths = np.rint(np.exp(self.log_mean + self.sigma * ndtri(low + u * (high - low))))
        bounded: Ints = np.clip(lengths, self.min_tokens, self.max_tokens).astype(np.int64)
        return bounded


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Through points of a measured distribution function, straight between them.

    For lengths with several humps, or of which many are equal: the points [0.2, 180] and
    [0.3, 181] say that a tenth has 181 tokens.

    Attributes:
        points: pairs [share, tokens]: this share of the requests has at most so many tokens.
            From share 0 (one token less than the least) to 1 (the greatest), both rising.
    """

    points: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        pairs = tuple(tuple(point) for point in self.points)
        for pair in pairs:
            if len(pair) != 2:
                raise SettingError("points", list(pair), "each point is [share, tokens]")
            checks.fraction("points", pair[0])
            checks.whole("points", pair[1])
        if len(pairs) < 2 or pairs[0][0] != 0 or pairs[-1][0] != 1:
            ends = [pairs[0][0], pairs[-1][0]] if pairs else []
            raise SettingError("points", ends, "the shares must run from 0 to 1")
        for low, high in pairwise(pairs):
            if low[0] >= high[0] or low[1] >= high[1]:
                reason = f"share and tokens must both rise, but it follows {list(low)}"
                raise SettingError("points", list(high), reason)
        object.__setattr__(self, "points", pairs)

    def at(self, u: Floats) -> Ints:
        """Lengths at the ranks `u`: the least that a share of more than `u` does not exceed."""
        shares, lengths = zip(*self.points, strict=True)
        through: Ints = np.ceil(np.interp(u, shares, lengths)).astype(np.int64)
        return np.maximum(through, int(lengths[0]) + 1)


@dataclass(frozen=True, slots=True)
class QuantilesByPrompt:
    """A table of reply lengths for each range of prompt lengths.

    For loads that are a mixture of applications: a reply then depends on its prompt in a way
    that rises and falls, which no correlation coefficient expresses.

    Attributes:
        up_to_tokens: greatest prompt of each range but the last, rising.
        tables: the `points` of `Quantiles` for each range; one more than there are bounds.
    """

    up_to_tokens: Sequence[int]
    tables: Sequence[Sequence[Sequence[float]]]

    def __post_init__(self) -> None:
        bounds, tables = tuple(self.up_to_tokens), tuple(Quantiles(t).points for t in self.tables)
        for bound in bounds:
            checks.whole("up_to_tokens", bound, at_least=1)
        if any(low >= high for low, high in pairwise(bounds)):
            raise SettingError("up_to_tokens", list(bounds), "must rise")
        if len(tables) != len(bounds) + 1:
            reason = f"{len(bounds)} bounds make {len(bounds) + 1} ranges, with a table for each"
            raise SettingError("tables", f"{len(tables)} tables", reason)
        object.__setattr__(self, "up_to_tokens", bounds)
        object.__setattr__(self, "tables", tables)

    def at_given(self, u: Floats, prompt_tokens: Ints) -> Ints:
        """Lengths at the ranks `u` of the table of each prompt's range."""
        which = np.searchsorted(np.asarray(self.up_to_tokens, dtype=np.int64), prompt_tokens)
        lengths = np.empty(len(u), dtype=np.int64)
        for i, points in enumerate(self.tables):
            lengths[which == i] = Quantiles(points).at(u[which == i])
        return lengths


def _check_bounds(min_tokens: int, max_tokens: int) -> None:
    checks.whole("min_tokens", min_tokens, at_least=1)
    checks.whole("max_tokens", max_tokens, at_least=1)
    if max_tokens < min_tokens:
        raise SettingError("max_tokens", max_tokens, f"must be at least min_tokens={min_tokens}")
