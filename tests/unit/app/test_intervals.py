"""Intervals of a run: which factors are drawn, what is reported, and what stays as it was."""

import pytest

from servesim.app.api import setup_from, simulate
from servesim.app.intervals import replications
from servesim.cost.residuals import parse
from servesim.cost.scaled import Scaled
from servesim.errors import SettingError, UnknownChoiceError

SMALL = ("workload.num_requests=12", "output.files=false")


def test_a_run_without_them_has_no_bounds_and_the_others_are_the_same() -> None:
    off, on = simulate(*SMALL), simulate(*SMALL, "intervals.replications=4")
    assert not [column for column in off.summary if column.endswith(("_low", "_high"))]
    assert {column: on.summary[column] for column in off.summary} == off.summary
    assert on.record == off.record
    for column in ("ttft_mean_s", "e2e_p99_s", "output_throughput_tokens_per_s"):
        low, high = (on.summary[f"{column}_{end}"] for end in ("low", "high"))
        assert isinstance(low, float)
        assert isinstance(high, float)
        assert low < high, column
    assert any("90% of 4 runs" in note for note in on.notes)


def test_the_same_run_has_the_same_bounds() -> None:
    first, again = (simulate(*SMALL, "intervals.replications=3").summary for _ in range(2))
    assert first == again


def test_a_wider_level_holds_a_narrower_one() -> None:
    wide, narrow = (
        simulate(*SMALL, "intervals.replications=5", f"intervals.level={level}").summary
        for level in (0.9, 0.5)
    )
    assert wide["tpot_mean_s_low"] < narrow["tpot_mean_s_low"]  # type: ignore[operator]
    assert wide["tpot_mean_s_high"] > narrow["tpot_mean_s_high"]  # type: ignore[operator]


def test_every_stratum_is_drawn_from_once_and_by_the_seed() -> None:
    n = 8
    setups = replications(setup_from(*SMALL, f"intervals.replications={n}"))
    residuals = parse(setup_from(*SMALL).cost.residuals)  # type: ignore[attr-defined]
    assert residuals is not None
    costs = [setup.cost for setup in setups]
    for kind in ("decode", "prefill"):
        factors = sorted(getattr(cost, kind) for cost in costs if isinstance(cost, Scaled))
        assert len(factors) == n
        for i, factor in enumerate(factors):
            low, high = (residuals.factor(kind, (i + end) / n) for end in (0, 1))
            assert low <= factor <= high
    assert all(setup.intervals.replications == 0 for setup in setups)
    other = replications(setup_from(*SMALL, f"intervals.replications={n}", "seed=2"))
    assert [setup.cost for setup in other] != costs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("intervals.replications=1", r"intervals.replications=1: one run has no spread"),
        ("intervals.replications=-1", r"intervals.replications=-1: must be 0 or more"),
        ("intervals.level=1.5", r"intervals.level=1.5: must be in \(0, 1\)"),
    ],
)
def test_a_wrong_setting_is_named(override: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        simulate(*SMALL, override)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(UnknownChoiceError, match=r"did you mean 'replications'"):
        simulate(*SMALL, "+intervals.replication=3")


def test_a_cost_without_residuals_has_no_intervals() -> None:
    with pytest.raises(SettingError, match=r"intervals.replications=5: cost=roofline has no resid"):
        simulate(*SMALL, "cost=roofline", "intervals.replications=5")
