"""Sums of a run's durations and their inverse."""

from hypothesis import given
from hypothesis import strategies as st

from servesim.cost.durations import Listed, Progression

progressions = st.builds(
    Progression, st.integers(1, 10**12), st.integers(0, 10**10), st.integers(1, 400)
)


def test_by_hand():
    run = Progression(first_ps=10, increment_ps=2, steps=4)  # 10, 12, 14, 16
    assert [run.total(n) for n in range(5)] == [0, 10, 22, 36, 52]
    assert [run.at(n) for n in range(4)] == [10, 12, 14, 16]
    assert [run.steps_until(t) for t in (0, 1, 10, 11, 22, 23, 52, 99)] == [1, 1, 1, 2, 2, 3, 4, 4]


@given(progressions, st.data())
def test_a_progression_and_its_list_agree(run, data):
    listed = Listed([run.at(step) for step in range(run.steps)])
    steps = data.draw(st.integers(0, run.steps))
    assert run.total(steps) == listed.total(steps)
    around = run.total(steps) + data.draw(st.integers(-2, 2))
    assert run.steps_until(around) == listed.steps_until(around)
    spread = [
        (first + increment * i) for first, increment, n in run.progressions(steps) for i in range(n)
    ]
    assert spread == [first for first, _, _ in listed.progressions(steps)]


@given(progressions, st.integers(0, 10**15))
def test_the_boundary_is_the_first_one_not_before_the_instant(run, elapsed):
    steps = run.steps_until(elapsed)
    assert 1 <= steps <= run.steps
    assert steps == run.steps or run.total(steps) >= elapsed
    assert steps == 1 or run.total(steps - 1) < elapsed
