"""A run of decode steps takes, to the picosecond, what its steps take one by one."""

import dataclasses

import pytest
from costs import CARD, LIKE_MEASURED, MODEL, ON_CARD, RANGE, chunk, cost, decode
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.cost.base import StepTimer
from servesim.cost.roofline import Roofline
from servesim.deployment import Deployment
from servesim.model.attention import Attention, Indexer, LatentAttention
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.recurrent import gated_delta_net
from servesim.records import NO_DECODES, Decodes, StepPlan, StepTime, Work

ROOFLINE = Roofline(0.79, 0.82, 6e-4, 1e-6, 0.3, 5e-6)
ON_TWO = Deployment(MODEL, dataclasses.replace(CARD, memory_bandwidth_gb_s=0.7), tp=2)
# first_kv_tokens 3000 and whole_from_seqs 5, with ranges that a run enters and leaves
FITTED = LIKE_MEASURED.bind(ON_CARD)
UNMEASURED = cost(
    {"decode_attention": {"us_per_kv_token": 0.3}},
    fit_range={**RANGE, "longest_decode_context": [100.5, 200.5], "kv_tokens": [150, 160]},
).bind(ON_CARD)
# two windows that a run fills, one of them by picking; experts and a state
LAYERS = (
    Layer(Attention(4, 2, 16, 16), MLP(128), 0),
    Layer(Attention(4, 2, 16, 16, window_tokens=300), MoE(8, 2, 32), 0),
    Layer(LatentAttention(4, 32, 8, 16, 16, 24, Indexer(2, 128, 24, picked=77)), None, 0),
    Layer(LatentAttention(4, 32, 8, 16, 16), MLP(128), 0),
    Layer(gated_delta_net(64, (2, 16), (4, 16), 4, 2), MoE(16, 3, 32), 0),
)
OF_ALL_KINDS = dataclasses.replace(MODEL, num_layers=len(LAYERS), layers=LAYERS)
TIMERS = {
    "fitted": FITTED,
    "with narrow ranges": UNMEASURED,
    "roofline": ROOFLINE.bind(ON_CARD),
    "roofline on two": ROOFLINE.bind(ON_TWO),
    "roofline of all kinds": ROOFLINE.bind(dataclasses.replace(ON_TWO, model=OF_ALL_KINDS)),
}
CONTEXTS = st.lists(st.integers(1, 1200) | st.integers(1, 30), min_size=1, max_size=9)


def group(contexts: list[int]) -> Decodes:
    return Decodes(len(contexts), sum(contexts), max(contexts))


def stepped(timer: StepTimer, decodes: Decodes) -> StepTime:
    return timer.step_time(StepPlan((), decodes=decodes))


@pytest.mark.parametrize("timer", TIMERS.values(), ids=TIMERS)
@settings(deadline=None)
@given(contexts=CONTEXTS, steps=st.integers(1, 2000), at=st.lists(st.integers(0, 1999), max_size=9))
def test_a_run_is_its_steps(
    timer: StepTimer, contexts: list[int], steps: int, at: list[int]
) -> None:
    decodes = group(contexts)
    durations = timer.decode_run(decodes, steps)
    assert 1 <= durations.steps <= steps
    last = durations.steps - 1
    for step in {0, last, *(step % durations.steps for step in at)}:
        time = stepped(timer, decodes.later(step))
        assert (durations.at(step), durations.outside) == (time.duration_ps, time.outside)
    few = min(durations.steps, 20)
    assert durations.total(few) == sum(
        stepped(timer, decodes.later(step)).duration_ps for step in range(few)
    )


@pytest.mark.parametrize("timer", TIMERS.values(), ids=TIMERS)
@settings(deadline=None, max_examples=30)
@given(contexts=CONTEXTS)
def test_run_after_run_gets_everywhere(timer: StepTimer, contexts: list[int]) -> None:
    """Through first_kv_tokens and both ends of every range, as the replica goes."""
    decodes, left, expected, got = group(contexts), 1500, [], []
    while left:
        durations = timer.decode_run(decodes, left)
        for step in range(durations.steps):
            got.append((durations.at(step), durations.outside))
            expected.append(tuple(stepped(timer, decodes.later(step))))
        decodes, left = decodes.later(durations.steps), left - durations.steps
    assert got == expected


@pytest.mark.parametrize("timer", TIMERS.values(), ids=TIMERS)
@given(
    contexts=CONTEXTS,
    grouped=st.integers(0, 9),
    chunks=st.lists(st.tuples(st.integers(2, 400), st.integers(0, 1100)), max_size=2),
)
def test_a_group_is_worth_its_members(
    timer: StepTimer, contexts: list[int], grouped: int, chunks: list[tuple[int, int]]
) -> None:
    members = tuple(decode(rid, context) for rid, context in enumerate(contexts))
    others = tuple(chunk(100 + i, tokens, past) for i, (tokens, past) in enumerate(chunks))
    listed = timer.step_time(StepPlan(members + others))
    inside = group(contexts[:grouped]) if grouped else NO_DECODES
    assert timer.step_time(StepPlan(members[grouped:] + others, decodes=inside)) == listed


def test_a_run_ends_where_the_first_reads_of_kv_do() -> None:
    # contexts of 4 × 700 grow by 4 a step; 3,000 are reached in step 50, and step 51 is cheaper
    durations = FITTED.decode_run(Decodes(4, 2800, 700), 1000)
    assert durations.steps == 51
    first = [stepped(FITTED, Decodes(4, 2800, 700).later(j)).duration_ps for j in (49, 50, 51, 52)]
    assert first[1] - first[0] > first[2] - first[1] == first[3] - first[2] > 0


def test_a_run_ends_where_a_range_begins_or_ends() -> None:
    ranges = {**RANGE, "longest_decode_context": [32, 1024], "kv_tokens": [40, 1030]}
    timer, lone = cost(fit_range=ranges).bind(ON_CARD), Decodes(1, 10, 10)
    expected = [
        (10, 22, ("longest_decode_context", "kv_tokens")),
        (32, 8, ("kv_tokens",)),
        (40, 985, ()),
        (1025, 6, ("longest_decode_context",)),
        (1031, 5000, ("longest_decode_context", "kv_tokens")),
    ]
    for context, steps, outside in expected:
        durations = timer.decode_run(lone.later(context - 10), 5000)
        assert (durations.steps, durations.outside) == (steps, outside)


def test_an_unsampled_token_is_no_decode() -> None:
    timer = ROOFLINE.bind(ON_CARD)
    silent = timer.step_time(StepPlan((Work(0, 1, 99, 0, False),)))
    assert silent.duration_ps < stepped(timer, group([100])).duration_ps
