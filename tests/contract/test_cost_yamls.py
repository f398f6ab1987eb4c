"""Every cost binds to what it is for, and keeps the promise of its seam."""

from functools import cache

import pytest
import yamls
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.app.api import setup_from
from servesim.app.setup import Setup
from servesim.cost.base import StepTimer
from servesim.errors import CostMismatchError
from servesim.records import Decodes, StepPlan, Work

CONTEXTS = st.lists(st.integers(1, 40_000), min_size=1, max_size=60)
CHUNKS = st.lists(st.tuples(st.integers(2, 2048), st.integers(0, 20_000)), max_size=3)


@cache
def made(name: str) -> Setup:
    """The cost with the model and GPU that it was fitted on, or the default ones."""
    on = yamls.tree(yamls.CONF / "cost" / f"{name}.yaml").get("fitted_on")
    if on is None:
        return setup_from(f"cost={name}")
    choices = [
        f"cost={name}",
        *(f"{key}={on[key]}" for key in ("tp", "dtype", "kv_dtype", "engine")),
    ]
    for group, wanted in (("model", on.model), ("hardware", on.gpu)):
        choices.append(f"{group}={yamls.stems(group)[wanted]}")
    return setup_from(*choices)


def bound(name: str) -> StepTimer:
    setup = made(name)
    return setup.cost.bind(setup.deployment)


def decodes(contexts: list[int]) -> tuple[Work, ...]:
    return tuple(Work(i, 1, context - 1, 0, True) for i, context in enumerate(contexts))


def prefills(chunks: list[tuple[int, int]]) -> tuple[Work, ...]:
    return tuple(Work(100 + i, tokens, past, 0, False) for i, (tokens, past) in enumerate(chunks))


@yamls.each("cost")
def test_it_holds_for_its_deployment_and_says_so(path):
    setup = made(path.stem)
    assert setup.cost.mismatch(setup.deployment) == ""
    line = setup.cost.describe()
    assert line.strip()
    assert "\n" not in line


@yamls.each("cost")
def test_another_deployment_is_refused_or_told_or_no_matter(path):
    setup = made(path.stem)
    other = setup_from("model=qwen3_0.6b", "hardware=l40s").deployment
    mismatch = setup.cost.mismatch(other)
    if hasattr(setup.cost, "fitted_on"):
        assert f"model Qwen/Qwen3-0.6B instead of {setup.deployment.model.name}" in mismatch
        with pytest.raises(CostMismatchError):
            setup.cost.bind(other)
    else:
        assert mismatch == ""
        assert setup.cost.bind(other).step_time(StepPlan(decodes([100]))).duration_ps > 0


@yamls.each("cost")
@settings(max_examples=40, deadline=None)
@given(contexts=CONTEXTS, chunks=CHUNKS, which=st.integers(0, 59), more=st.integers(1, 4000))
def test_times_are_positive_repeatable_and_grow_with_the_batch(path, contexts, chunks, which, more):
    timer, twin = bound(path.stem), bound(path.stem)

    def ps(contexts, chunks):
        plan = StepPlan(decodes(contexts) + prefills(chunks))
        time = timer.step_time(plan)
        assert isinstance(time.duration_ps, int)
        assert time == timer.step_time(plan) == twin.step_time(plan)
        return time.duration_ps

    before = ps(contexts, chunks)
    assert before > 10**8  # 0.1 ms: no engine steps faster
    longer = [c + more * (i == which % len(contexts)) for i, c in enumerate(contexts)]
    assert ps(longer, chunks) >= before
    assert ps([*contexts, more], chunks) >= before
    assert ps(contexts, [*chunks, (more + 1, which)]) >= before
    if chunks:
        tokens, past = chunks[0]
        assert ps(contexts, [(tokens + more, past), *chunks[1:]]) >= before
        assert ps(contexts, [(tokens, past + more), *chunks[1:]]) >= before


@yamls.each("cost")
@settings(max_examples=40, deadline=None)
@given(contexts=CONTEXTS, steps=st.integers(1, 3000), at=st.integers(0, 2999))
def test_a_run_of_decodes_is_its_steps(path, contexts, steps, at):
    timer = bound(path.stem)
    batch = Decodes(len(contexts), sum(contexts), max(contexts))
    assert timer.step_time(StepPlan((), decodes=batch)) == timer.step_time(
        StepPlan(decodes(contexts))
    )
    durations = timer.decode_run(batch, steps)
    assert 1 <= durations.steps <= steps
    for step in {0, at % durations.steps, durations.steps - 1}:
        time = timer.step_time(StepPlan((), decodes=batch.later(step)))
        assert (durations.at(step), durations.outside) == (time.duration_ps, time.outside)


@yamls.each("cost")
def test_axes_that_a_step_is_outside_of_have_a_range(path):
    setup = made(path.stem)
    huge = decodes([500_000] * 400) + prefills([(30_000, 500_000)])
    for axis in setup.cost.bind(setup.deployment).step_time(StepPlan(huge)).outside:
        low, high = setup.cost.axis_range(axis)
        assert 0 <= low <= high
        assert low < high or (axis, high) == ("prefill_past", 0)  # no chunk with a past measured
