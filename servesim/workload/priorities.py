"""Priority classes, drawn per request for loads that have none of their own."""

from collections.abc import Mapping

import numpy as np

from servesim import checks, seeds
from servesim.errors import SettingError


def checked_shares(shares: Mapping[int, float] | None) -> dict[int, float] | None:
    """A plain copy of {priority: share}, or SettingError. Shares of 0 are allowed."""
    if shares is None:
        return None
    if not isinstance(shares, Mapping):
        raise SettingError("priorities", shares, "must be a mapping {priority: share} or null")
    for priority, share in shares.items():
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise SettingError("priorities", priority, "a priority must be a whole number")
        checks.fraction(f"priorities.{priority}", share)
    total = sum(shares.values())
    if abs(total - 1) > 1e-9:
        reason = f"the shares must add up to 1, not {total:g}; a class left over from the default"
        raise SettingError("priorities", dict(shares), f"{reason} is removed by a share of 0")
    return {priority: float(share) for priority, share in shares.items()}


def draw(shares: Mapping[int, float] | None, num_requests: int, seed: int) -> list[int]:
    """The priority of each request (lower is more urgent); 0 for all without `shares`."""
    if shares is None:
        return [0] * num_requests
    priorities = sorted(p for p in shares if shares[p] > 0)
    ends = np.cumsum([shares[p] for p in priorities])
    u = seeds.stream(seed, "workload.priority").random(num_requests)
    which = np.minimum(np.searchsorted(ends, u, side="right"), len(priorities) - 1)
    return [priorities[i] for i in which.tolist()]
