"""Sums over steps, by the row and one by one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from servesim.engine.step_log import StepLog
from servesim.gaps import Gaps

runs = st.lists(
    st.tuples(
        st.integers(1, 10**13),  # first duration
        st.integers(0, 10**9),  # increment
        st.integers(1, 300),  # requests
        st.integers(0, 10**6),  # blocks before
        st.lists(st.integers(0, 20), min_size=1, max_size=30),  # taken
    ),
    max_size=12,
)


def test_totals_by_hand():
    log = StepLog()
    log.add_step(duration_ps=10, decodes=0, seqs=2, tokens=30, blocks=4)
    log.add_run(first_ps=5, increment_ps=1, seqs=3, blocks=4, taken=[0, 2])
    log.add_outside(("tokens", "kv"), 2, 11)
    totals = log.totals()
    assert (totals.steps, totals.busy_ps, totals.tokens, totals.seqs) == (3, 21, 36, 8)
    assert totals.seq_ps == 2 * 10 + 3 * (5 + 6)
    assert totals.block_ps == 4 * 10 + 4 * 5 + 6 * 6
    assert (totals.max_blocks, totals.max_seqs) == (6, 3)
    assert (totals.outside_any, totals.outside_ps) == (2, 11)
    assert dict(totals.outside) == {"tokens": 2, "kv": 2}
    assert dict(log.gaps(Counter({5: 1}))) == {5: 4, 6: 3}


def test_of_nothing_the_sums_are_zero():
    totals = StepLog().totals()
    assert (totals.steps, totals.busy_ps, totals.block_ps, totals.max_blocks) == (0, 0, 0, 0)
    assert len(StepLog().gaps(Counter())) == 0


@given(runs)
def test_a_run_counts_as_its_steps_do(rows):
    by_run, by_step, gaps = StepLog(), StepLog(), Counter()
    for first, increment, seqs, blocks, taken in rows:
        by_run.add_run(first, increment, seqs, blocks, taken)
        for step, count in enumerate(taken):
            blocks += count
            by_step.add_step(first + step * increment, seqs, seqs, seqs, blocks)
            gaps[first + step * increment] += seqs
    assert by_run.totals() == by_step.totals()
    assert by_run.gaps(Counter()) == by_step.gaps(Counter()) == Gaps.of(gaps)
