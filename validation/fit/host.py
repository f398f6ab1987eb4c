"""Host time per step, from the end of a measured serving run.

Operator profiles hold kernels only. After the last request of a run got its first token, nothing
but decode steps is left: that request's remaining tokens say how many, its time stamps how long
they took together, those of the others which of them were still in the batch. What the kernels do
not explain is the host.
"""

from dataclasses import dataclass
from functools import cache

from scipy.optimize import brentq

from servesim.cost.fitted_timer import FittedTimer
from servesim.errors import SettingError
from servesim.records import Decodes, StepPlan
from servesim.units import US_PER_S, ps_to_seconds
from validation.sources.llmservingsim import Served

MOST_HOST_US = 5000.0  # an order of magnitude above any measured
ROUNDS = 4  # of placing the other requests' ends, which moves with the step times


@dataclass(frozen=True)
class HostTime:
    """Host time per step, and what it was derived from."""

    us: float
    steps: int
    first_batch: int
    last_batch: int


def derive(run: list[Served], kernels: FittedTimer) -> HostTime:
    """Host time that makes the decode-only end of `run` last as long as it did.

    Args:
        run: the measured requests.
        kernels: a timer without host time.

    Raises:
        SettingError: kernels alone take longer than the run did.
    """
    last = max(run, key=lambda served: served.first_token_s)
    steps = last.output_tokens - 1
    alive = [s for s in run if s.last_token_s > last.first_token_s and s is not last]

    @cache  # the search asks for both ends of its interval again
    def excess_s(host_us: float) -> float:
        return _duration_s(last, alive, kernels, host_us) - (last.last_token_s - last.first_token_s)

    if excess_s(0.0) >= 0 or excess_s(MOST_HOST_US) <= 0:
        raise SettingError(
            "host_step_us", None, "cannot be derived: kernels alone do not fit the measured run"
        )
    us = float(brentq(excess_s, 0.0, MOST_HOST_US, xtol=1.0))
    ending = sum(s.last_token_s >= last.last_token_s for s in alive) + 1
    return HostTime(us, steps, len(alive) + 1, ending)


def _duration_s(last: Served, alive: list[Served], kernels: FittedTimer, host_us: float) -> float:
    """Time of the steps left to `last`, with each other request in the batch until its stamp."""
    steps = last.output_tokens - 1
    ends = [steps] * len(alive)  # first guess: everyone stays
    total_s = 0.0
    for _ in range(ROUNDS):
        clock_s = last.first_token_s
        stops = [steps] * len(alive)
        for step in range(steps):
            contexts = [_context(last, steps - step)]
            for i, served in enumerate(alive):
                if served.last_token_s > clock_s:
                    contexts.append(_context(served, max(1, ends[i] - step)))
                elif stops[i] == steps:
                    stops[i] = step
            batch = Decodes(len(contexts), sum(contexts), max(contexts))
            duration_ps = kernels.step_time(StepPlan((), decodes=batch)).duration_ps
            clock_s += ps_to_seconds(duration_ps) + host_us / US_PER_S
        ends, total_s = stops, clock_s - last.first_token_s
    return total_s


def _context(served: Served, steps_left: int) -> int:
    """KV read by the decode with `steps_left` steps to the last token, this one included."""
    return max(1, served.input_tokens + served.output_tokens - steps_left)
