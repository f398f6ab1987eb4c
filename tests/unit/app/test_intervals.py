"""Intervals of a run: which factors are drawn, what is reported, and what stays as it was."""

import pytest

from servesim.app.api import setup_from, simulate
from servesim.app.interval_settings import Intervals
from servesim.app.intervals import replications
from servesim.cost.residuals import parse
from servesim.cost.scaled import Scaled
from servesim.errors import SettingError, UnknownChoiceError

SMALL = ("workload.num_requests=12", "output.files=false")
LEVELS = "cost.residuals.levels=[0.05,0.5,0.95]"
NINE = ("intervals.replications=9", "intervals.level=0.8")


def test_a_run_without_them_has_no_bounds_and_the_others_are_the_same() -> None:
    off, on = simulate(*SMALL), simulate(*SMALL, *NINE)
    assert not [column for column in off.summary if column.endswith(("_low", "_high"))]
    assert {column: on.summary[column] for column in off.summary} == off.summary
    assert on.record == off.record
    for column in ("ttft_mean_s", "e2e_p99_s", "output_throughput_tokens_per_s"):
        low, high = (on.summary[f"{column}_{end}"] for end in ("low", "high"))
        assert isinstance(low, float)
        assert isinstance(high, float)
        assert low < high, column
    assert any("80% interval of 9 runs" in note for note in on.notes)


def test_the_same_run_has_the_same_bounds() -> None:
    first, again = (simulate(*SMALL, *NINE).summary for _ in range(2))
    assert first == again


def test_a_wider_level_holds_a_narrower_one() -> None:
    wide, narrow = (
        simulate(*SMALL, "intervals.replications=19", f"intervals.level={level}").summary
        for level in (0.9, 0.5)
    )
    assert wide["tpot_mean_s_low"] < narrow["tpot_mean_s_low"]  # type: ignore[operator]
    assert wide["tpot_mean_s_high"] > narrow["tpot_mean_s_high"]  # type: ignore[operator]


def test_known_residuals_make_a_known_interval() -> None:
    """One request alone: TTFT is one prefill step and a front end, TPOT decode steps only."""
    settings = (
        *("workload.num_requests=1", "output.files=false", "front_end.queue_s=0.1", LEVELS),
        "+cost.residuals.correlation=0.3",
        "cost.residuals.decode=[-0.2,0.0,0.1]",
        "cost.residuals.prefill=[-0.3,0.0,0.4]",
        "intervals.replications=19",  # levels 0.05, 0.1 … 0.95: the ends are those of the residuals
    )
    row = simulate(*settings).summary
    for column, low, high in (
        ("tpot_mean_s", 0.818731, 1.105171),  # exp(-0.2), exp(0.1)
        ("ttft_mean_s", 0.740818, 1.491825),  # exp(-0.3), exp(0.4)
    ):
        assert row[f"{column}_low"] == pytest.approx(low * row[column], rel=1e-6)
        assert row[f"{column}_high"] == pytest.approx(high * row[column], rel=1e-6)


def test_every_level_is_looked_at_once_and_the_pairs_go_by_the_seed() -> None:
    n = 9
    setups = replications(setup_from(*SMALL, *NINE, "front_end.queue_s=0.01"))
    residuals = parse(setup_from(*SMALL).cost.residuals)  # type: ignore[attr-defined]
    assert residuals is not None
    costs = [setup.cost for setup in setups if isinstance(setup.cost, Scaled)]
    for kind in ("decode", "prefill"):
        expected = [residuals.factor(kind, (i + 1) / (n + 1)) for i in range(n)]
        assert sorted(getattr(cost, kind) for cost in costs) == expected
    assert all(setup.intervals.replications == 0 for setup in setups)
    assert [setup.front_end.queue_s for setup in setups] == [0.01 * c.prefill for c in costs]
    other = replications(setup_from(*SMALL, *NINE, "seed=2"))
    assert [setup.cost for setup in other] != costs


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["intervals.replications=1"],
            r"replications=1: too few for intervals.level=0.9; nearest: 0 or 19$",
        ),
        (
            ["intervals.replications=10"],
            r"too few for intervals.level=0.9; nearest: 0 or 19 \(or intervals.level=0.818\)$",
        ),
        (
            ["intervals.replications=38", "intervals.level=0.95"],
            r"too few for intervals.level=0.95; nearest: 0 or 39 \(or intervals.level=0.948\)",
        ),
        (
            ["intervals.replications=50", "intervals.level=0.95"],
            r"intervals.level=0.95: .*residuals of the points held out of its fit, which are "
            r"steps and not served runs, which end before; nearest: 0.9$",
        ),
        (["intervals.replications=-1"], r"intervals.replications=-1: must be 0 or more"),
        (["intervals.level=1.5"], r"intervals.level=1.5: must be in \(0, 1\)"),
    ],
)
def test_a_wrong_setting_is_named(overrides: list[str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        simulate(*SMALL, *overrides)


def test_the_fewest_replications_and_the_highest_level_are_accepted() -> None:
    for n, level in ((3, 0.5), (9, 0.8), (19, 0.9), (10, 0.818), (199, 0.9)):
        assert Intervals(n, level).fewest <= n


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(UnknownChoiceError, match=r"did you mean 'replications'"):
        simulate(*SMALL, "+intervals.replication=3")


def test_what_was_fitted_to_nothing_has_wide_intervals() -> None:
    row = simulate(*SMALL, "cost=roofline", "intervals.replications=19").summary
    residuals = parse(setup_from("cost=roofline").cost.residuals)  # type: ignore[attr-defined]
    assert residuals is not None
    for column in ("tpot_mean_s", "ttft_mean_s"):
        low, high = (row[f"{column}_{end}"] for end in ("low", "high"))
        assert high / low > 2, column  # type: ignore[operator]
    # it is too fast: nearly all measured steps are longer
    assert residuals.factor("decode", 0.05) > 1
    assert row["tpot_mean_s_high"] > 1.5 * row["tpot_mean_s"]  # type: ignore[operator]


def test_a_cost_without_residuals_has_no_intervals() -> None:
    cost = "cost=llama3.1_8b_h100_64gb_hbm2"
    with pytest.raises(SettingError, match=r"intervals.replications=19: cost=.* has no residuals"):
        simulate(*SMALL, cost, "hardware=h100_64gb_hbm2", "intervals.replications=19")
