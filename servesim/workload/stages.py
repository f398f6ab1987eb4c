"""Arrivals whose rate changes in steps, as load tools run one stage after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from servesim import checks
from servesim.errors import SettingError
from servesim.workload.arrivals import Arrivals

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stages:
    """A stage sends at its rate for its duration; the next one begins when that is over.

    A stage has rate × duration requests, rounded. Times are in gaps of the mean over the stages:
    set the workload's `rate_rps` to `mean_rate_rps` for the stages' own rates, to another for all
    of them stretched alike. Requests beyond the last stage go on at its rate.

    Attributes:
        rates_rps: of each stage, requests per second.
        durations_s: of each stage, seconds.
        within: how arrivals are spread within a stage.
    """

    rates_rps: Sequence[float]
    durations_s: Sequence[float]
    within: Arrivals

    def __post_init__(self) -> None:
        for name in ("rates_rps", "durations_s"):
            values = tuple(getattr(self, name))
            if not values:
                raise SettingError(name, list(values), "must have a number for each stage")
            for value in values:
                checks.positive(name, value)
            object.__setattr__(self, name, values)
        if len(self.rates_rps) != len(self.durations_s):
            reason = f"must be one for each of the {len(self.rates_rps)} rates"
            raise SettingError("durations_s", list(self.durations_s), reason)
        if not isinstance(self.within, Arrivals):
            raise SettingError(
                "within", self.within, "is no arrival process (is its _target_ set?)"
            )

    @property
    def num_requests(self) -> tuple[int, ...]:
        """Requests of each stage."""
        stages = zip(self.rates_rps, self.durations_s, strict=True)
        return tuple(round(rate * duration) for rate, duration in stages)

    @property
    def mean_rate_rps(self) -> float:
        """Requests of all stages over their durations."""
        return sum(self.num_requests) / sum(self.durations_s)

    def times(self, num_requests: int, rng: np.random.Generator) -> Floats:
        """Arrival times in mean gaps; each stage draws in turn."""
        parts, start_s, left = [], 0.0, num_requests
        last = len(self.rates_rps) - 1
        for stage, of_stage in enumerate(self.num_requests):
            number = left if stage == last else min(of_stage, left)
            gaps = self.within.times(number, rng)
            parts.append(start_s + gaps / self.rates_rps[stage])
            start_s += self.durations_s[stage]
            left -= number
        # where gaps are drawn, a stage's last requests may come after the next one's first
        return np.sort(np.concatenate(parts)) * self.mean_rate_rps
