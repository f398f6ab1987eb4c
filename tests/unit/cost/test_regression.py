"""The regression of whole steps: hand-computed times, runs, and what a YAML may not hold."""

import math
from typing import Any

import pytest
from costs import ON_CARD, RANGE, US, chunk, decode

from servesim.cost.regression import Regression
from servesim.errors import CostMismatchError, SettingError
from servesim.records import Decodes, StepPlan, Work

TERMS: dict[str, Any] = {
    "step_us": 300.0,
    "us_per_token": 4.0,
    "corner": 2,
    "us_per_spilled_token": 2.0,
    "spill_tokens": 200,
    "us_per_kv_token": 0.5,
    "us_per_query_key": 0.01,
    "us_per_seq": 3.0,
    "chunk_us": 70.0,
}


def regression(**changes: Any) -> Regression:
    on = {"model": "toy", "gpu": "card", "tp": 1, "dtype": "bf16", "kv_dtype": "bf16"}
    source = {"repository": "r", "commit": "0123456789", "licence": "MIT", "files": "f"}
    tree: dict[str, Any] = {
        "fitted_on": {**on, "engine": "vllm"},
        "source": {**source, "engine_version": "0.19.0", "fitted_at": "2026-01-01"},
        "fit_range": RANGE,
        "held_out_error": {"step": {"median": 0.02, "p90": 0.06, "worst": 0.3}},
        "coefficients": TERMS,
    }
    return Regression(**(tree | changes))


def us(*work: Work, **terms: Any) -> float:
    timer = regression(coefficients=TERMS | terms).bind(ON_CARD)
    return timer.step_time(StepPlan(work)).duration_ps / US


def test_decodes_cost_weights_matrices_context_and_requests() -> None:
    # 100 decodes of 40 tokens: √(300² + 400²) = 500, 0.5 · 4,000 = 2,000, 3 · 100 = 300
    assert us(*(decode(i, 40) for i in range(100))) == pytest.approx(2800)


def test_a_chunk_adds_its_pairs_and_its_own_overhead() -> None:
    # 100 tokens after 60: 500 as before, 0.5 · 160 = 80, 0.01 · 100 · (60 + 50) = 110, 3, 70
    assert us(chunk(0, 100, 60)) == pytest.approx(500 + 80 + 110 + 3 + 70)


def test_tokens_beyond_the_spill_cost_more() -> None:
    # 225 tokens: √(300² + 900²), 25 · 2 = 50 more, 112.5, 253.125, 3, 70
    expected = math.sqrt(300**2 + 900**2) + 50 + 112.5 + 0.01 * 225 * 112.5 + 3 + 70
    assert us(chunk(0, 225)) == pytest.approx(expected)


def test_a_sharper_corner_is_nearer_to_the_larger_side() -> None:
    # 75 tokens: both sides are 300: 2^(1/2) and 2^(1/4) of it
    both = [us(*(decode(i, 1) for i in range(75)), corner=c) for c in (2, 4)]
    rest = 0.5 * 75 + 3 * 75
    assert both == pytest.approx([300 * 2**0.5 + rest, 300 * 2**0.25 + rest])


def test_a_run_is_its_steps_to_the_picosecond() -> None:
    timer = regression(coefficients=TERMS | {"us_per_kv_token": 0.123456789}).bind(ON_CARD)
    decodes = Decodes(7, 900, 400)
    run = timer.decode_run(decodes, 50)
    assert run.steps == 50
    for step in range(run.steps):
        time = timer.step_time(StepPlan((), decodes=decodes.later(step)))
        assert (run.at(step), run.outside) == (time.duration_ps, time.outside)


def test_a_run_ends_where_it_leaves_the_fitted_range() -> None:
    timer = regression().bind(ON_CARD)
    assert timer.decode_run(Decodes(1, 1000, 1000), 500).steps == 25  # contexts 1000 … 1024
    assert timer.decode_run(Decodes(1, 1025, 1025), 500).outside == ("longest_decode_context",)


def test_another_deployment_is_refused() -> None:
    on = dict(regression().fitted_on) | {"tp": 2}
    with pytest.raises(CostMismatchError, match="tp 1 instead of 2"):
        regression(fitted_on=on).bind(ON_CARD)
    regression(fitted_on=on, allow_mismatch=True).bind(ON_CARD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"us_per_seq": -1}, r"coefficients.us_per_seq=-1: must be 0 or more"),
        ({"corner": 3}, r"coefficients.corner=3: must be one of \(2, 4\)"),
        ({"spill_tokens": 1.5}, r"coefficients.spill_tokens=1.5: must be a whole number"),
        ({"us_per_sec": 1}, r"coefficients.us_per_sec=1: is none of step_us"),
    ],
)
def test_a_wrong_coefficient_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        regression(coefficients=TERMS | changes)


def test_a_missing_coefficient_is_named() -> None:
    terms = {key: value for key, value in TERMS.items() if key != "chunk_us"}
    with pytest.raises(SettingError, match=r"coefficients.chunk_us=None: is missing"):
        regression(coefficients=terms)


def test_it_says_what_it_is() -> None:
    line = regression().describe()
    assert line.startswith("regression of whole steps of vllm 0.19.0, toy on card tp1")
    assert "median 2.0%" in line
