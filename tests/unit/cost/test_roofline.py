"""A model and a GPU with round numbers, so that every part of a step can be worked out by hand."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim.cost.roofline import Roofline
from servesim.deployment import Deployment
from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec
from servesim.records import StepPlan, Work

US = 10**6  # picoseconds

# weights of a layer: 100 × (40 for q, k, v + 20 for the output) + 3 × 100 × 80 = 30,000
MODEL = ModelSpec("toy", 2, 100, 2, 1, 10, 80, 1000, False, 4096)
# 1 GB/s and 1 GFLOP/s: a byte takes a nanosecond, and so does a floating-point operation
SLOW = GPU("slow", 1.0, 1.0, {"bf16": 0.001}, 1.0)
EXACT = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 0.0)


def decode(rid: int, context: int, *, drafts: int = 0) -> Work:
    return Work(rid, 1 + drafts, context - 1 - drafts, drafts, True)


def time_ps(cost: Roofline, *work: Work, gpu: GPU = SLOW, tp: int = 1) -> int:
    return cost.bind(Deployment(MODEL, gpu, tp=tp)).step_time(StepPlan(work)).duration_ps


def test_the_toy_has_the_weights_of_the_hand_computation() -> None:
    assert MODEL.linear_parameters_per_layer == 30_000
    assert MODEL.kv_bytes_per_token("bf16") == 80


def test_one_unsampled_token_is_bound_by_weights_and_attention() -> None:
    # 60,000 weights × 2 bytes = 120 µs = their 60,000 × 2 FLOP; attention on itself 160 FLOP > 80 B
    chunk = Work(0, 1, 0, 0, False)
    assert time_ps(EXACT, chunk) == 120 * US + 160_000


def test_the_head_runs_over_sampled_rows_only() -> None:
    # 100,000 weights: 200 µs to read, 200 µs of FLOPs per row
    silent = Work(0, 1, 0, 0, False)
    rows = [time_ps(EXACT, silent, Work(1, 1, 0, 0, sampled)) for sampled in (False, True)]
    assert rows[1] - rows[0] == 200 * US
    drafts = time_ps(EXACT, decode(0, 50, drafts=2)) - time_ps(EXACT, Work(0, 3, 47, 2, False))
    assert drafts == 3 * 200 * US


def test_a_chunk_attends_to_its_past_and_to_itself() -> None:
    # 4 FLOP × 2 layers × 2 heads × 10 wide = 160 per key; tokens 1..3 on 10 past see 11 + 12 + 13
    chunk = time_ps(EXACT, Work(0, 3, 10, 0, False))
    assert chunk == 3 * 120 * US + 160 * (11 + 12 + 13) * 1000


def test_decodes_are_bound_by_reading_kv_where_flops_are_cheap() -> None:
    fast = dataclasses.replace(SLOW, dense_tflops={"bf16": 1000.0})
    step = time_ps(EXACT, decode(0, 30), decode(1, 20), gpu=fast)
    assert step == (120 + 200) * US + 80 * 50 * 1000


def test_efficiencies_divide_the_rates_and_host_time_is_added() -> None:
    half = Roofline(0.5, 0.5, 1e-3, 1e-5, 1.0, 0.0)
    chunk = Work(0, 1, 0, 0, False)
    assert time_ps(half, chunk) == 2 * time_ps(EXACT, chunk) + 1010 * US
    assert time_ps(half) == 1000 * US  # no work, no per-sequence time


def test_two_ranks_halve_the_weights_and_reduce_twice_per_layer() -> None:
    # all-reduces: 2 × 2 layers × (2 × 1/2 × 100 × 2 bytes at 1 GB/s + 5 µs); attention on one head
    cost = dataclasses.replace(EXACT, link_latency_s=5e-6)
    assert (
        time_ps(cost, Work(0, 1, 0, 0, False), tp=2) == (60 * 1000 + 80 + 4 * 200 + 4 * 5000) * 1000
    )


def test_a_gpu_without_the_dtype_and_bad_efficiencies_are_named() -> None:
    with pytest.raises(UnknownChoiceError, match=r"dtype for slow 'fp8'.*known: bf16"):
        EXACT.bind(Deployment(MODEL, SLOW, dtype="fp8"))
    with pytest.raises(SettingError, match=r"compute_efficiency=1.5"):
        Roofline(1.5, 1.0, 0.0, 0.0, 1.0, 0.0)
    with pytest.raises(SettingError, match=r"host_overhead_s=-1"):
        Roofline(1.0, 1.0, -1, 0.0, 1.0, 0.0)
    with pytest.raises(UnknownChoiceError, match="axis"):
        EXACT.axis_range("tokens")


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3000)), min_size=1, max_size=8),
    st.integers(0, 7),
    st.integers(1, 100),
)
def test_more_tokens_or_longer_contexts_never_take_less(
    work: list[tuple[int, int]], which: int, more: int
) -> None:
    which %= len(work)
    cost = Roofline(0.8, 0.8, 1e-4, 1e-6, 0.5, 1e-6)

    def step(extra_tokens: int, extra_past: int) -> int:
        return time_ps(
            cost,
            *(
                Work(i, n + extra_tokens * (i == which), p + extra_past * (i == which), 0, True)
                for i, (n, p) in enumerate(work)
            ),
        )

    assert step(0, 0) <= step(more, 0)
    assert step(0, 0) <= step(0, more)
