"""How far measured steps lay from a cost: quantiles of their log residuals, by kind of step.

A cost's YAML may hold them as `residuals`, what the interval of a prediction comes from.

    residuals:
      of: 60 runs of vllm on b200_sxm          # or absent: of the points held out of the fit
      levels: [0.05, 0.25, 0.5, 0.75, 0.95]
      decode: [-0.1, -0.03, 0.0, 0.02, 0.09]   # log(measured ÷ predicted) of decode-only steps
      prefill: [...]                           # of steps with a prefill chunk, and the front end
      correlation: 0.4                         # of both, as normal scores; absent: 0

Of n runs, the ith smallest stands at level i / (n + 1): the next run lies below it with that
probability, whatever their distribution.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from servesim import checks
from servesim.errors import SettingError, nearest

KINDS = ("decode", "prefill")
REQUIRED = ("levels", *KINDS)
OPTIONAL = ("of", "correlation")
HELD_OUT = "the points held out of its fit, which are steps and not served runs"
MOST_LOG = 5.0  # a factor of 150: no fit is that wrong, a table in percent is


@dataclass(frozen=True, slots=True)
class Residuals:
    """Quantiles of log(measured ÷ predicted).

    Attributes:
        levels: shares of points, increasing within (0, 1).
        decode: quantiles for decode-only steps, one for each level.
        prefill: the same for steps with a prefill chunk.
        correlation: of the normal scores of both, for what was measured together.
        of: what they were measured on.
    """

    levels: tuple[float, ...]
    decode: tuple[float, ...]
    prefill: tuple[float, ...]
    correlation: float = 0.0
    of: str = HELD_OUT

    @property
    def outermost(self) -> float:
        """The tail of which nothing is known: nothing lies beyond the outer levels."""
        return max(self.levels[0], 1 - self.levels[-1])

    def factor(self, kind: str, level: float) -> float:
        """Measured ÷ predicted at `level`: linear between levels, constant beyond the outer ones.

        Rounded to millionths, so that every machine has the same factor.

        Args:
            kind: one of KINDS.
            level: a share of points.
        """
        levels, logs = self.levels, self.decode if kind == "decode" else self.prefill
        if level <= levels[0]:
            log = logs[0]
        elif level >= levels[-1]:
            log = logs[-1]
        else:
            i = next(i for i, upper in enumerate(levels) if upper > level)
            share = (level - levels[i - 1]) / (levels[i] - levels[i - 1])
            log = logs[i - 1] + share * (logs[i] - logs[i - 1])
        return round(math.exp(log), 6)


def parse(tree: object) -> Residuals | None:
    """The checked tree of a YAML; None where it has none.

    Raises:
        SettingError: an entry is missing, unknown, or no quantiles.
    """
    if tree is None:
        return None
    known = (*REQUIRED, *OPTIONAL)
    if not isinstance(tree, Mapping):
        raise SettingError("residuals", tree, f"must be a mapping with {', '.join(known)}")
    for key in tree:
        if key not in known:
            raise SettingError(f"residuals.{key}", tree[key], f"is unknown{nearest(key, known)}")
    for key in REQUIRED:
        if key not in tree:
            raise SettingError(f"residuals.{key}", None, f"is missing{nearest(key, tree)}")
    levels = _rising("levels", tree["levels"])
    if not 0 < levels[0] < levels[-1] < 1:
        raise SettingError("residuals.levels", list(levels), "must be two or more in (0, 1)")
    decode, prefill = (_rising(kind, tree[kind]) for kind in KINDS)
    for kind, logs in (("decode", decode), ("prefill", prefill)):
        if len(logs) != len(levels):
            raise SettingError(f"residuals.{kind}", list(logs), f"must be {len(levels)} values")
        if max(-logs[0], logs[-1]) > MOST_LOG:
            raise SettingError(f"residuals.{kind}", list(logs), "must be log ratios, not percent")
    return Residuals(levels, decode, prefill, _correlation(tree), str(tree.get("of", HELD_OUT)))


def _correlation(tree: Mapping[str, Any]) -> float:
    value = checks.number("residuals.correlation", tree.get("correlation", 0.0))
    if abs(value) > 1:
        raise SettingError("residuals.correlation", value, "must be in [-1, 1]")
    return value


def _rising(key: str, values: Any) -> tuple[float, ...]:
    setting = f"residuals.{key}"
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise SettingError(setting, values, "must be a list of numbers")
    numbers = tuple(checks.number(setting, value) for value in values)
    if any(b < a for a, b in pairwise(numbers)):
        raise SettingError(setting, list(values), "must not fall")
    return numbers
