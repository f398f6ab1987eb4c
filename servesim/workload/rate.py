"""The rate that every workload takes, synthetic or traced: `workload.rate_rps`."""

import math

from servesim import checks
from servesim.errors import SettingError

# One request in eleven days. Below it the setting is a slip, and far below times overflow.
LEAST_RATE_RPS = 1e-6


def check(rate_rps: float) -> None:
    """Refuse what is neither a rate in requests/s nor infinity (all requests at time 0)."""
    if isinstance(rate_rps, float) and rate_rps == math.inf:
        return
    checks.positive("rate_rps", rate_rps)
    if rate_rps < LEAST_RATE_RPS:
        raise SettingError("rate_rps", rate_rps, f"must be at least {LEAST_RATE_RPS:g}, or inf")
