"""Arrival processes: when requests come, in units of the mean gap.

A process knows shape only. The workload divides by its rate, so one seed at two rates gives the
same arrivals, stretched. All at once is not a process but a rate of infinity, as in vLLM.

Three conventions for the same gaps g1, g2, ... are in use and differ by a gap or a factor:

* raw (default): arrivals g1, g1+g2, ...; the mean rate is met in expectation.
* `normalise` (vLLM `bench serve`): the raw arrivals, scaled so that the last is exactly N/rate.
* `first_at_zero` (SGLang `bench_serving`): 0, g1, g1+g2, ...; not scaled, the N-th gap is unused.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from servesim import checks
from servesim.errors import SettingError

Floats = NDArray[np.float64]


@runtime_checkable
class Arrivals(Protocol):
    """A point process with mean gap 1."""

    def times(self, num_requests: int, rng: np.random.Generator) -> Floats:
        """Arrival times in mean gaps, ascending.

        The first requests are the same for any number of them, unless the process is normalised.
        """


@dataclass(frozen=True, slots=True)
class Constant:
    """Every gap is the mean gap (vLLM's burstiness of infinity).

    Attributes:
        first_at_zero: the first request comes at 0 instead of after the first gap.
    """

    first_at_zero: bool = False

    def __post_init__(self) -> None:
        checks.flag("first_at_zero", self.first_at_zero)

    def times(self, num_requests: int, rng: np.random.Generator) -> Floats:
        """1, 2, ... N, or 0, 1, ... N−1."""
        first = 0 if self.first_at_zero else 1
        return np.arange(first, first + num_requests, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Exponential gaps, CV 1: independent users. The same draws as Gamma with burstiness 1.

    Attributes:
        normalise: scale so that the last arrival is exactly N/rate (vLLM `bench serve`).
        first_at_zero: the first request comes at 0 (SGLang `bench_serving`).
    """

    normalise: bool = False
    first_at_zero: bool = False

    def __post_init__(self) -> None:
        _check_convention(self.normalise, self.first_at_zero)

    def times(self, num_requests: int, rng: np.random.Generator) -> Floats:
        """Sums of Exp(1) gaps."""
        gaps = rng.standard_exponential(num_requests)
        return _arrange(gaps, self.normalise, self.first_at_zero)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gaps ~ Gamma(shape = burstiness, scale = 1/(rate·burstiness)), as vLLM defines it.

    The CV of the gaps is 1/√burstiness: 1 is Poisson, 1/9 has CV 3, above 1 is smoother than
    Poisson. (Not burstiness in the sense of CV²: larger is *less* bursty.)

    Attributes:
        burstiness: shape of the gamma law.
        normalise: scale so that the last arrival is exactly N/rate (vLLM `bench serve`).
        first_at_zero: the first request comes at 0 (SGLang `bench_serving`).
    """

    burstiness: float = 1.0
    normalise: bool = False
    first_at_zero: bool = False

    def __post_init__(self) -> None:
        if self.burstiness == float("inf"):
            reason = (
                "must be finite; a burstiness of infinity is servesim.workload.arrivals.Constant"
            )
            raise SettingError("burstiness", self.burstiness, reason)
        checks.positive("burstiness", self.burstiness)
        _check_convention(self.normalise, self.first_at_zero)

    def times(self, num_requests: int, rng: np.random.Generator) -> Floats:
        """Sums of gamma gaps of mean 1."""
        gaps = rng.standard_gamma(self.burstiness, num_requests) / self.burstiness
        return _arrange(gaps, self.normalise, self.first_at_zero)


def _check_convention(normalise: bool, first_at_zero: bool) -> None:
    checks.flag("normalise", normalise)
    checks.flag("first_at_zero", first_at_zero)
    if normalise and first_at_zero:
        reason = "one of normalise (vLLM) and first_at_zero (SGLang), no tool does both"
        raise SettingError("normalise", normalise, reason)


def _arrange(gaps: Floats, normalise: bool, first_at_zero: bool) -> Floats:
    if first_at_zero:
        gaps = np.concatenate(([0.0], gaps[:-1]))
    times = np.cumsum(gaps)
    # Gaps can all underflow to 0 at a burstiness near 0; vLLM too leaves such times alone.
    if normalise and times[-1] > 0:
        times = times / times[-1] * len(times)
    return times
