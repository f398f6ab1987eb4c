"""Any tables that never fall: no step gets cheaper when it gets larger, and a run is its steps."""

from itertools import accumulate
from random import Random
from typing import Any

import pytest
from costs import RANGE, chunk, decode
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_costs import timer

from servesim.cost.kernel_timer import KernelTimer
from servesim.records import Decodes, StepPlan

# few distinct rises, so that flat pieces, ties and jumps come up
RISES = (0.0, 0.0, 0.001, 0.3, 7.0, 200.0)
CONTEXTS = st.lists(st.integers(1, 3000) | st.integers(1, 30), min_size=1, max_size=12)
CHUNKS = st.lists(st.tuples(st.integers(2, 700), st.integers(0, 1500)), max_size=3)


def knots(*choices: int, least: int = 2) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(choices), min_size=least, max_size=4, unique=True).map(sorted)


def falling_nowhere(random: Random, *lengths: int) -> Any:
    """Nested lists of sums of rises along every axis."""
    if len(lengths) == 1:
        return list(accumulate(random.choice(RISES) for _ in range(lengths[0])))
    parts = [falling_nowhere(random, *lengths[1:]) for _ in range(lengths[0])]
    return list(accumulate(parts, _added))


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, float):
        return one + other
    return [_added(a, b) for a, b in zip(one, other, strict=True)]


@st.composite
def timers(draw: st.DrawFn, decode_attention: Any = None) -> KernelTimer:
    seqs, contexts = draw(knots(1, 2, 3, 7, 16)), draw(knots(1, 16, 100, 128, 1000, 4096))
    chunks, pasts = draw(knots(1, 2, 16, 100, 512)), draw(knots(0, 16, 300, 1024))
    random = draw(st.randoms(use_true_random=True))
    mixed = None
    if decode_attention is None:
        rows = falling_nowhere(random, len(seqs), len(contexts))
        ragged = [row[: random.randint(2, len(row))] for row in rows]
        decode_attention = {"seqs": seqs, "context": contexts, "us": ragged}
        if draw(st.booleans()):
            us = falling_nowhere(random, len(chunks), len(pasts), len(seqs), len(contexts))
            mixed = {"chunk": chunks, "past": pasts, "seqs": seqs, "context": contexts, "us": us}
    whole_from = draw(st.integers(0, 6))
    names = ("us", "us_per_seq", "us_per_token", "eager_us", "launch_us_per_layer")
    host = {name: random.choice(RISES) for name in names}
    host["us"] += draw(st.sampled_from([0.0, 900.0, 1200.0]))
    return timer(
        overlaps=draw(st.booleans()),
        decode_attention=decode_attention,
        prefill_attention={
            "chunk": chunks,
            "past": pasts,
            "us": falling_nowhere(random, len(chunks), len(pasts)),
        },
        mixed_attention=mixed,
        mixed={"decode_share": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))},
        uneven={
            "seqs_equivalent": draw(st.sampled_from([0, 0.5, 1.0])) * max(whole_from, 1),
            "whole_from_seqs": whole_from,
        },
        host=host,
        graphs={"sizes": draw(knots(1, 2, 4, 8, 100, least=0))},
        fit_range={**RANGE, "longest_decode_context": [100, 2000], "kv_tokens": [150, 9000]},
    )


def step_ps(
    bound: KernelTimer,
    contexts: list[int],
    chunks: list[tuple[int, int]],
    *,
    samples: bool = False,
) -> int:
    work = [decode(rid, context) for rid, context in enumerate(contexts)]
    work += [chunk(100 + i, new, past, samples=samples) for i, (new, past) in enumerate(chunks)]
    return bound.step_time(StepPlan(tuple(work))).duration_ps


@settings(max_examples=100, deadline=None)
@given(
    bound=timers(),
    contexts=CONTEXTS,
    chunks=CHUNKS,
    which=st.integers(0, 11),
    more=st.integers(1, 3000) | st.integers(1, 5),
)
def test_a_step_is_not_cheaper_by_tokens_or_chunks(
    bound: KernelTimer,
    contexts: list[int],
    chunks: list[tuple[int, int]],
    which: int,
    more: int,
) -> None:
    before = step_ps(bound, contexts, chunks)
    longer = [c + more * (i == which % len(contexts)) for i, c in enumerate(contexts)]
    assert step_ps(bound, longer, chunks) >= before
    assert step_ps(bound, contexts, [*chunks, (more + 1, which)]) >= before
    if chunks:
        new, past = chunks[0]
        assert step_ps(bound, contexts, [(new + more, past), *chunks[1:]]) >= before
        assert step_ps(bound, contexts, [(new, past + more), *chunks[1:]]) >= before


# by sequences plus by their total context, so that a call of the same total is never shorter for
# more sequences
TOTALS = {"seqs": [1, 2, 9], "context": [1, 16, 100, 1000]}
TOTALS["us"] = [
    [us + slope * n * c for c in TOTALS["context"]]
    for n, us, slope in zip(TOTALS["seqs"], (3.0, 3.0, 10.0), (0.01,) * 3, strict=True)
]


@settings(max_examples=60, deadline=None)
@given(bound=timers(TOTALS), contexts=CONTEXTS, more=st.integers(1, 3000), chunks=CHUNKS)
def test_a_step_is_not_cheaper_by_a_sequence(
    bound: KernelTimer, contexts: list[int], more: int, chunks: list[tuple[int, int]]
) -> None:
    before = step_ps(bound, contexts, chunks)
    assert step_ps(bound, [*contexts, more], chunks) >= before
    assert step_ps(bound, contexts[1:], chunks) <= before


@settings(max_examples=60, deadline=None)
@given(bound=timers(TOTALS), context=st.integers(1, 3000))
def test_a_second_token_is_not_for_less(bound: KernelTimer, context: int) -> None:
    """The decode becomes a chunk."""
    one, two = step_ps(bound, [context], []), [(2, context - 1)]
    assert step_ps(bound, [], two, samples=True) >= one


@settings(max_examples=80, deadline=None)
@given(bound=timers(), contexts=CONTEXTS, wanted=st.integers(1, 200))
def test_run_after_run_is_step_after_step(
    bound: KernelTimer, contexts: list[int], wanted: int
) -> None:
    decodes = Decodes(len(contexts), sum(contexts), max(contexts))
    listed = tuple(decode(rid, context) for rid, context in enumerate(contexts))
    first = bound.step_time(StepPlan((), decodes=decodes))
    assert bound.step_time(StepPlan(listed)) == first
    got, expected = [], []
    while wanted:
        run = bound.decode_run(decodes, wanted)
        assert 1 <= run.steps <= wanted
        for step in range(run.steps):
            got.append((run.at(step), run.outside))
            expected.append(tuple(bound.step_time(StepPlan((), decodes=decodes.later(step)))))
        decodes, wanted = decodes.later(run.steps), wanted - run.steps
    assert got == expected


FAR = {
    overlaps: timer(overlaps=overlaps, uneven={"seqs_equivalent": 3, "whole_from_seqs": 9})
    for overlaps in (False, True)
}


@pytest.mark.parametrize("overlaps", FAR)
@given(seqs=st.integers(1, 700), mean=st.integers(1, 40_000), share=st.floats(0, 1))
def test_runs_far_beyond_the_tables(overlaps: bool, seqs: int, mean: int, share: float) -> None:
    bound = FAR[overlaps]
    decodes = Decodes(seqs, seqs * mean, mean + int(share * (seqs - 1) * (mean - 1)))
    run = bound.decode_run(decodes, 10_000)
    for step in (0, run.steps // 2, run.steps - 1):
        time = bound.step_time(StepPlan((), decodes=decodes.later(step)))
        assert (run.at(step), run.outside) == (time.duration_ps, time.outside)
