"""Quantiles of log residuals: reading between levels, and what a YAML may not hold."""

import math
from typing import Any

import pytest

from servesim.cost.residuals import HELD_OUT, Residuals, parse
from servesim.errors import SettingError

TREE: dict[str, Any] = {
    "levels": [0.1, 0.5, 0.9],
    "decode": [-0.2, 0.0, 0.1],
    "prefill": [-0.1, 0.1, 0.3],
}


def read() -> Residuals:
    found = parse(TREE)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "level", "log"),
    [
        ("decode", 0.1, -0.2),
        ("decode", 0.3, -0.1),  # half way from −0.2 to 0
        ("decode", 0.7, 0.05),
        ("decode", 0.01, -0.2),  # nothing is known beyond the outer levels
        ("decode", 0.99, 0.1),
        ("prefill", 0.5, 0.1),
    ],
)
def test_between_levels_logs_are_linear(kind: str, level: float, log: float) -> None:
    assert read().factor(kind, level) == round(math.exp(log), 6)


def test_what_they_are_of_and_how_they_go_together_may_be_said() -> None:
    assert (read().correlation, read().of) == (0.0, HELD_OUT)
    said = parse(TREE | {"of": "4 runs", "correlation": -0.4})
    assert said is not None
    assert (said.correlation, said.of) == (-0.4, "4 runs")


def test_nothing_is_known_beyond_the_outer_levels() -> None:
    assert read().outermost == pytest.approx(0.1)
    lopsided = parse(TREE | {"levels": [0.02, 0.5, 0.9]})
    assert lopsided is not None
    assert lopsided.outermost == pytest.approx(0.1)


def test_a_cost_may_have_none() -> None:
    assert parse(None) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode": [0.1, 0.0, 0.2]}, r"residuals.decode=.*: must not fall"),
        ({"prefill": [0.1, 0.2]}, r"residuals.prefill=.*: must be 3 values"),
        ({"levels": [0.0, 0.5, 1.0]}, r"residuals.levels=.*: must be two or more in \(0, 1\)"),
        ({"decode": [-20, 0, 9]}, r"residuals.decode=.*: must be log ratios, not percent"),
        ({"decode": "wide"}, r"residuals.decode='wide': must be a list of numbers"),
        ({"correlation": 1.2}, r"residuals.correlation=1.2: must be in \[-1, 1\]"),
        ({"prefil": [0]}, r"residuals.prefil=.*: is unknown.*did you mean 'prefill'"),
    ],
)
def test_what_is_no_distribution_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse(TREE | changes)


def test_a_missing_kind_is_named() -> None:
    with pytest.raises(SettingError, match=r"residuals.decode=None: is missing"):
        parse({"levels": [0.1, 0.9], "prefill": [0, 0]})
