"""From runs that were off to the `residuals` of a cost (servesim/cost/residuals.py).

An interval is asked for where nothing was measured, and runs of one configuration (model, tp,
dtypes: those that share a cost) are off alike. A run therefore counts with its distance from the
median of the runs of other configurations, which is how far off it was for those who had only them,
around the median of all.

Of n runs the ith smallest stands at i / (n + 1), since the next run is below it with that
probability: a level is there only where runs are beyond it, 0.05 and 0.95 from 19 runs on. A GPU
and engine with fewer, or with too few configurations, has its distances and those of others of the
engine around its own median, wider by √(1 + 1/n), as the median of n runs is itself off.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from servesim.app.interval_levels import normal_scores
from validation.calibrate.off import Off

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
WIDE = LEVELS[1:-1]  # what is said where runs of other GPUs stand for those of one
ENOUGH = 19  # runs, for levels 0.05 and 0.95
CONFIGURATIONS = 4  # of which runs are enough

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Family = tuple[str, str]  # GPU, engine
Families = Mapping[Family, Sequence[Off]]


def by_family(runs: Sequence[Off]) -> dict[Family, list[Off]]:
    """The runs of each GPU and engine, in order."""
    found: dict[Family, list[Off]] = {}
    for run in runs:
        found.setdefault((run.gpu, run.engine), []).append(run)
    return {family: found[family] for family in sorted(found)}


def residuals_by_family(runs: Sequence[Off]) -> dict[Family, dict[str, Any]]:
    """`residuals` of every GPU and engine with a run.

    A family without enough runs has none where no other has enough.
    """
    families = by_family(runs)
    enough = {family: own for family, own in families.items() if is_enough(own)}
    found = {}
    for family, own in families.items():
        if family in enough:
            found[family] = tree(unseen(pairs(own), [run.cost for run in own]), _of(family, own))
        elif enough:
            same = {other: r for other, r in enough.items() if other[1] == family[1]}
            found[family] = borrowed(family, own, same or enough)
    return found


def pooled(runs: Sequence[Off]) -> dict[str, Any]:
    """`residuals` for a GPU and engine of which nothing was measured: those of all others."""
    families = by_family(runs)
    of = f"{len(runs)} runs of {len(families)} GPUs and engines, none tuned on"
    return tree(unseen(pairs(runs), [(run.gpu, run.engine) for run in runs]), of, WIDE)


def borrowed(family: Family, own: Sequence[Off], lenders: Families) -> dict[str, Any]:
    """`residuals` of a few runs: their distances and those of others, around their own median."""
    several = len({run.cost for run in own}) > 1
    groups = [*([own] if several else []), *lenders.values()]
    distances = [from_others(pairs(runs), [run.cost for run in runs]) for runs in groups]
    spread = math.sqrt(1 + 1 / len(own)) * np.concatenate(distances)
    names = ", ".join(f"{engine} on {gpu}" for gpu, engine in lenders)
    number = sum(map(len, lenders.values()))
    of = f"{_of(family, own)}, with the spread of {number} of {names}"
    return tree(np.median(pairs(own), axis=0) + spread, of, WIDE)


def unseen(logs: Array, groups: Sequence[object]) -> Array:
    """Where runs of a group would lie that nobody has seen: distances around the median of all."""
    return np.asarray(np.median(logs, axis=0) + from_others(logs, groups))


def from_others(logs: Array, groups: Sequence[object]) -> Array:
    """Distance of each run from the median of the runs of other groups.

    Args:
        logs: of decode and prefill; shape (n, 2).
        groups: which group each run is of, at least two in all.
    """
    found = np.empty_like(logs)
    for group in dict.fromkeys(groups):
        inside = np.array([other == group for other in groups])
        found[inside] = logs[inside] - np.median(logs[~inside], axis=0)
    return found


def left_out(runs: Sequence[Off]) -> Array:
    """Whether each run is between levels 0.05 and 0.95 of what other configurations' runs say.

    Columns: decode, prefill; shape (n, 2). What intervals of figures would hold that are off as
    these two are, without a simulation; one of both is held a little more or less often.

    Args:
        runs: of one GPU and engine, in three configurations or more.
    """
    logs, configurations = pairs(runs), [run.cost for run in runs]
    inside = np.zeros(logs.shape, dtype=bool)
    for configuration in dict.fromkeys(configurations):
        here = np.array([other == configuration for other in configurations])
        rest = unseen(logs[~here], [c for c in configurations if c != configuration])
        low, high = np.quantile(rest, (0.05, 0.95), axis=0, method="weibull")
        inside[here] = (low <= logs[here]) & (logs[here] <= high)
    return inside


def tree(logs: Array, of: str, levels: Sequence[float] = LEVELS) -> dict[str, Any]:
    """`residuals` as a cost's YAML holds them.

    Args:
        logs: log(measured ÷ predicted) of decode and prefill, one pair a run; shape (n, 2).
        of: what they are of.
        levels: of which those stay that have a run beyond.
    """
    n = len(logs)
    kept = [level for level in levels if min(level, 1 - level) * (n + 1) >= 1 - 1e-9]
    decode, prefill = np.quantile(logs, kept, axis=0, method="weibull").T
    return {
        "of": of,
        "levels": kept,
        "decode": [round(float(q), 4) for q in decode],
        "prefill": [round(float(q), 4) for q in prefill],
        "correlation": round(_correlation(logs), 2),
    }


def pairs(runs: Sequence[Off]) -> Array:
    """Logs of decode and prefill; shape (n, 2)."""
    return np.array([(run.decode, run.prefill) for run in runs])


def _correlation(logs: Array) -> float:
    """Of normal scores, which no single run dominates; 0 where either does not vary."""
    if not np.ptp(logs, axis=0).all():
        return 0.0
    return float(np.corrcoef([normal_scores(side.tolist()) for side in logs.T])[0, 1])


def is_enough(runs: Sequence[Off]) -> bool:
    """Whether runs of one GPU and engine need no others."""
    return len(runs) >= ENOUGH and len({run.cost for run in runs}) >= CONFIGURATIONS


def _of(family: Family, runs: Sequence[Off]) -> str:
    gpu, engine = family
    kinds = len({run.cost for run in runs})
    shown = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
    if kinds > 1:
        shown += f" in {kinds} configurations"
    return f"{shown} of {engine} on {gpu}"
