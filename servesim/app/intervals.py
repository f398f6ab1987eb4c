"""Intervals of a prediction, from the residuals of its cost.

The run is repeated with times that are off as measured ones were: one factor for all decode-only
steps, and one for all others and the front end, whose part of a first token's latency no
measurement tells apart. A fit that is off is off in every step of a kind alike, so the factors are
systematic; noise from step to step averages out over the thousands of a run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from servesim.app import interval_levels
from servesim.app.interval_settings import ROUNDING, at_most
from servesim.app.setup import Setup
from servesim.cost import residuals
from servesim.cost.residuals import Residuals
from servesim.cost.scaled import Scaled
from servesim.errors import SettingError
from servesim.metrics.base import Value
from servesim.seeds import stream


def bounds(
    setup: Setup, columns: Sequence[str], row_of: Callable[[Setup], Mapping[str, Value]]
) -> dict[str, Value]:
    """`<column>_low` and `<column>_high` of every column that is a number in all replications.

    Args:
        setup: of the run; its `intervals` say how many replications and which level.
        columns: of the summary.
        row_of: the summary of a run.

    Raises:
        SettingError: the cost has no residuals, or too few; or there are data-parallel ranks.
    """
    rows = [row_of(replication) for replication in replications(setup)]
    found: dict[str, Value] = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        numbers = [float(v) for v in values if isinstance(v, int | float) and v is not True]
        if len(numbers) == len(rows):
            low, high = interval_levels.bounds(numbers, setup.intervals.tail)
            found |= {f"{column}_low": low, f"{column}_high": high}
    return found


def replications(setup: Setup) -> list[Setup]:
    """The same run with a cost that is off, as often as the setting says.

    Raises:
        SettingError: as above.
    """
    n, known = setup.intervals.replications, residuals_of(setup)
    if setup.deployment.dp > 1:
        reason = "has no meaning for ranks in lock-step; nearest: 0"
        raise SettingError("intervals.replications", n, reason)
    shift = float(stream(setup.seed, "intervals").random())
    return [
        off(setup, known.factor("decode", decode), known.factor("prefill", prefill))
        for decode, prefill in interval_levels.pairs(n, known.correlation, shift)
    ]


def off(setup: Setup, decode: float, prefill: float) -> Setup:
    """The run with decode-only steps × `decode`, other steps and the front end × `prefill`."""
    return replace(
        setup,
        cost=Scaled(setup.cost, decode, prefill),
        front_end=setup.front_end.scaled(prefill),
        intervals=replace(setup.intervals, replications=0),
    )


def residuals_of(setup: Setup) -> Residuals:
    """Those of the run's cost.

    Raises:
        SettingError: it has none, or they end before the interval does.
    """
    settings, cost = setup.intervals, setup.labels.get("cost")
    found = residuals.parse(getattr(setup.cost, "residuals", None))
    if found is None:
        reason = f"cost={cost} has no residuals; nearest: 0, or a cost of measured runs"
        raise SettingError("intervals.replications", settings.replications, reason)
    if settings.tail < found.outermost - ROUNDING:
        most = at_most(found.outermost)
        reason = f"cost={cost} has residuals of {found.of}, which end before; nearest: {most:g}"
        raise SettingError("intervals.level", settings.level, reason)
    return found


def note(setup: Setup) -> str:
    """What the bounds are, for the summary."""
    settings = setup.intervals
    return (
        f"columns _low and _high: {settings.level:.0%} interval of {settings.replications} runs "
        f"with step times as far off as {residuals_of(setup).of}"
    )
