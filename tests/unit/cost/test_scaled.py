"""A scaled cost: which factor a step takes, and that a run of decodes is its steps."""

from typing import Any

import pytest
from costs import LIKE_MEASURED, ON_CARD, chunk, cost, decode
from hypothesis import given
from hypothesis import strategies as st

from servesim.cost.scaled import Scaled
from servesim.errors import SettingError
from servesim.records import Decodes, StepPlan, Work

HOST: dict[str, dict[str, Any]] = {"host": {"us": 100}}


def ps(model: Scaled, *work: Work) -> int:
    return model.bind(ON_CARD).step_time(StepPlan(work)).duration_ps


@pytest.mark.parametrize(
    ("work", "factor"),
    [
        ([decode(0, 20)], 1.1),
        ([decode(0, 20), decode(1, 30, drafts=3)], 1.1),
        ([chunk(0, 20)], 0.5),
        ([decode(0, 20), chunk(1, 20, 40)], 0.5),
    ],
)
def test_each_kind_of_step_has_its_factor(work: list[Work], factor: float) -> None:
    scaled = Scaled(cost(HOST), decode=1.1, prefill=0.5)
    assert ps(scaled, *work) == round(100e6 * factor)


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=9),
    st.integers(1, 300),
    st.floats(0.2, 5),
)
def test_a_run_of_decodes_is_its_steps(contexts: list[int], steps: int, factor: float) -> None:
    timer = Scaled(LIKE_MEASURED, decode=factor).bind(ON_CARD)
    decodes = Decodes(len(contexts), sum(contexts), max(contexts))
    run = timer.decode_run(decodes, steps)
    assert 1 <= run.steps <= steps
    for step in range(run.steps):
        time = timer.step_time(StepPlan((), decodes=decodes.later(step)))
        assert (run.at(step), run.outside) == (time.duration_ps, time.outside)


def test_the_rest_is_that_of_the_other_cost() -> None:
    scaled = Scaled(LIKE_MEASURED, decode=0.9)
    assert scaled.mismatch(ON_CARD) == LIKE_MEASURED.mismatch(ON_CARD)
    assert scaled.axis_range("tokens") == (1, 512)
    assert scaled.describe().endswith("decode steps × 0.9, steps with prefill × 1")


def test_a_factor_is_above_zero() -> None:
    with pytest.raises(SettingError, match=r"decode=0: must be above 0"):
        Scaled(LIKE_MEASURED, decode=0)
