"""The one number that a run returns to a sweeper that optimises."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace

from servesim.app.run import execute
from servesim.app.setup import Setup
from servesim.errors import SettingError
from servesim.metrics.base import Value
from servesim.workload.base import Load

NONE = math.nan  # what a run without an objective, or one that failed, returns


def check(name: str | None, setup: Setup, load: Load) -> None:
    """Refuse an objective that the summary will not have, before hours are spent on it.

    Which columns there are depends on the metrics, so the first request is simulated by itself.
    """
    if name is not None:
        first = replace(load, requests=load.requests[:1])
        value_of(name, execute(setup, load=first).summary)


def value_of(name: str | None, summary: Mapping[str, Value]) -> float:
    """The objective of a run; NaN where there is none or it has no value.

    Raises:
        SettingError: it is no column of the summary, or one that holds no number.
    """
    if name is None:
        return NONE
    if name not in summary:
        close = difflib.get_close_matches(str(name), list(summary), n=1, cutoff=0.5)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise SettingError("objective", name, f"is no column of summary.json{hint}")
    value = summary[name]
    if isinstance(value, str):
        raise SettingError("objective", name, f"that column holds no number but {value!r}")
    return NONE if value is None else float(value)
