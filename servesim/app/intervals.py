"""Intervals of a prediction, from the residuals of its cost.

The run is repeated with step times that are off as the fit was on its held-out points: one factor
for all decode-only steps and one for all others, drawn anew for each replication from the
residuals' quantiles. A fit that is off is off in every step of a kind alike, so the factor is
systematic; noise from step to step averages out over the thousands of a run.

Draws are stratified: with n replications, each nth of either distribution is drawn from once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from servesim.app.interval_settings import Intervals
from servesim.app.setup import Setup
from servesim.cost import residuals
from servesim.cost.scaled import Scaled
from servesim.errors import SettingError
from servesim.metrics.base import Value
from servesim.seeds import stream

FEWEST = 2  # values that an interval is taken from


def bounds(
    setup: Setup, columns: Sequence[str], row_of: Callable[[Setup], Mapping[str, Value]]
) -> dict[str, Value]:
    """`<column>_low` and `<column>_high` of every column that is a number in all but a few runs.

    Args:
        setup: of the run; its `intervals` say how many replications and which level.
        columns: of the summary.
        row_of: the summary of a run.

    Raises:
        SettingError: the cost has no residuals, or there are data-parallel ranks.
    """
    settings = setup.intervals
    rows = [row_of(replication) for replication in replications(setup)]
    found: dict[str, Value] = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        numbers = [float(v) for v in values if isinstance(v, int | float) and v is not True]
        if len(numbers) >= FEWEST:
            tail = (1 - settings.level) / 2
            low, high = np.quantile(numbers, (tail, 1 - tail))
            found |= {f"{column}_low": float(low), f"{column}_high": float(high)}
    return found


def replications(setup: Setup) -> list[Setup]:
    """The same run with a cost that is off, as often as the setting says.

    Raises:
        SettingError: as above.
    """
    n = setup.intervals.replications
    found = residuals.parse(getattr(setup.cost, "residuals", None))
    if found is None:
        cost = setup.labels.get("cost")
        reason = f"cost={cost} has no residuals; nearest: 0, or a fitted cost"
        raise SettingError("intervals.replications", n, reason)
    if setup.deployment.dp > 1:
        reason = "has no meaning for ranks in lock-step; nearest: 0"
        raise SettingError("intervals.replications", n, reason)
    draws = stream(setup.seed, "intervals")
    shares = draws.random((n, 2))
    strata = draws.permutation(n)
    made = []
    for i in range(n):
        decode = found.factor("decode", (i + float(shares[i, 0])) / n)
        prefill = found.factor("prefill", (int(strata[i]) + float(shares[i, 1])) / n)
        off = Scaled(setup.cost, decode, prefill)
        made.append(replace(setup, cost=off, intervals=replace(setup.intervals, replications=0)))
    return made


def note(settings: Intervals) -> str:
    """What the bounds are, for the summary."""
    return (
        f"columns _low and _high: {settings.level:.0%} of {settings.replications} runs with step "
        "times as far off as the fit was on held-out points"
    )
