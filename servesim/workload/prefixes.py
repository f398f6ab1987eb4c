"""Prefixes that many prompts share: system prompts, tool lists, few-shot examples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servesim import checks

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class PrefixGroups:
    """Some requests begin with one of a few common prefixes, which is part of their prompt.

    Attributes:
        num_groups: how many different prefixes there are.
        prefix_tokens: length of each.
        share: part of the requests that begin with one.
        zipf_exponent: the k-th group (from 1) is chosen in proportion to k^−exponent; 0 is evenly.
    """

    num_groups: int
    prefix_tokens: int
    share: float = 1.0
    zipf_exponent: float = 0.0

    def __post_init__(self) -> None:
        checks.whole("num_groups", self.num_groups, at_least=1)
        checks.whole("prefix_tokens", self.prefix_tokens, at_least=1)
        checks.fraction("share", self.share)
        checks.not_negative("zipf_exponent", self.zipf_exponent)

    def groups(self, num_requests: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The group of each request from 0, or NO_GROUP.

        A request has two numbers of its own, one for having a prefix and one for which: a change
        of `share` moves nobody from one group to another.
        """
        u = rng.random((num_requests, 2))
        weights = np.arange(1, self.num_groups + 1, dtype=np.float64) ** -self.zipf_exponent
        ends = np.cumsum(weights) / weights.sum()
        which = np.minimum(np.searchsorted(ends, u[:, 1], side="right"), self.num_groups - 1)
        return np.where(u[:, 0] < self.share, which, NO_GROUP).astype(np.int64)
