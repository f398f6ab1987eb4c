"""Coefficients with round numbers: each part of a step by hand, checks, ranges, monotonicity."""

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim.cost.fitted import Fitted
from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec
from servesim.records import StepPlan, StepTime, Work

US = 10**6  # picoseconds
MODEL = ModelSpec("toy", 2, 64, 4, 2, 16, 128, 1000, False, 4096)
CARD = GPU("card", 1.0, 1.0, {"bf16": 1.0}, 1.0)
ON_CARD = Deployment(MODEL, CARD)

NOTHING: dict[str, Any] = {
    "dense": {"knots_tokens": [1, 2], "us": [0, 0], "tile_tokens": 64, "tile_share": 0},
    "once": {"us": 0, "us_per_token": 0},
    "head": {"knots_rows": [1, 2], "us": [0, 0]},
    "decode_attention": {
        "us": 0,
        "us_per_seq": 0,
        "us_per_kv_token": 0,
        "us_per_first_kv_token": 0,
        "first_kv_tokens": 0,
        "whole_from_seqs": 1000,
        "us_if_whole": 0,
        "us_per_uneven_token": 0,
    },
    "mixed_attention": {
        "tile_queries": 64,
        "task_us": 0,
        "task_us_per_kv_token": 0,
        "us_per_launched_tile": 0,
        "us_per_tile": 0,
        "us_per_tile_kv_token": 0,
        "us_per_seq": 0,
        "us_per_kv_token": 0,
        "ragged_share": 0,
        "us_per_spilled_kv_token": 0,
        "spill_kv_tokens": 0,
        "spill_seqs": 0,
    },
    "link": {"us": 0, "us_per_token": 0},
    "host": {"us": 0, "us_per_seq": 0},
}
RANGE = {
    "tokens": [1, 512],
    "sampled_rows": [1, 64],
    "decode_seqs": [1, 64],
    "kv_tokens_per_decode": [16, 1024],
    "prefill_past": [0, 1024],
    "kv_tokens": [1, 9000],
}


def cost(parts: dict[str, dict[str, Any]] | None = None, **fields: Any) -> Fitted:
    tree = copy.deepcopy(NOTHING)
    for part, values in (parts or {}).items():
        tree[part].update(values)
    on = {"model": "toy", "gpu": "card", "tp": 1, "dtype": "bf16", "kv_dtype": "bf16"}
    source = {"repository": "r", "commit": "0123456789", "licence": "MIT", "files": "f"}
    defaults: dict[str, Any] = {
        "fitted_on": {**on, "engine": "vllm"},
        "source": {**source, "engine_version": "0.19.0", "fitted_at": "2026-01-01"},
        "fit_range": RANGE,
        "held_out_error": {"step": {"median": 0.02, "p90": 0.06, "worst": 0.3}},
        "coefficients": tree,
    }
    return Fitted(**(defaults | fields))


def step(model: Fitted, *work: Work) -> StepTime:
    return model.bind(ON_CARD).step_time(StepPlan(work))


def decode(rid: int, context: int, *, drafts: int = 0) -> Work:
    return Work(rid, 1 + drafts, context - 1 - drafts, drafts, True)


def chunk(rid: int, tokens: int, past: int = 0, *, samples: bool = False) -> Work:
    return Work(rid, tokens, past, 0, samples)


MIXED = (decode(0, 100), decode(1, 300), chunk(2, 100, 50), chunk(3, 40, 500))  # 142 tokens


@pytest.mark.parametrize(
    ("part", "values", "work", "us"),
    [
        # two layers; 142 tokens in tiles of 64 are 192, and half-way between is 167
        ("dense", {"knots_tokens": [1, 101], "us": [10, 110]}, MIXED, 2 * 151),
        ("dense", {"knots_tokens": [1, 101], "us": [10, 110], "tile_share": 0.5}, MIXED, 2 * 176),
        ("once", {"us": 5, "us_per_token": 2}, MIXED, 5 + 2 * 142),
        ("link", {"us": 3, "us_per_token": 0.5}, MIXED, 2 * 2 * (3 + 71)),
        ("host", {"us": 7, "us_per_seq": 2}, MIXED, 7 + 2 * 4),
        ("host", {"us": 7, "us_per_seq": 2}, (), 7),
        ("head", {"us": [10, 14]}, (chunk(0, 64),), 0),
        ("head", {"us": [10, 14]}, (chunk(0, 64, samples=True),), 10),
        ("head", {"us": [10, 14]}, (decode(0, 50, drafts=3), decode(1, 9)), 10 + 4 * 4),
        ("decode_attention", {"us": 3}, (decode(0, 100), decode(1, 300)), 2 * 3),
        ("decode_attention", {"us_per_seq": 3}, (decode(0, 100), decode(1, 300)), 2 * 6),
        ("decode_attention", {"us_per_kv_token": 0.5}, (decode(0, 100), decode(1, 300)), 400),
        (
            "decode_attention",
            {"us_per_first_kv_token": 0.5, "first_kv_tokens": 150},
            (decode(0, 100), decode(1, 300)),
            2 * 75,
        ),
        ("decode_attention", {"us": 3}, (chunk(0, 64),), 0),
        # tiles: 2 on 50 + 100/2 tokens, 1 on 500 + 40/2; four requests launch two tiles each
        ("mixed_attention", {"us_per_tile": 3}, MIXED, 2 * 3 * 3),
        ("mixed_attention", {"us_per_launched_tile": 1}, MIXED, 2 * 8),
        ("mixed_attention", {"us_per_tile_kv_token": 0.5}, MIXED, 2 * 100 + 520),
        ("mixed_attention", {"us_per_seq": 3}, MIXED, 2 * 2 * 3),
        ("mixed_attention", {"us_per_kv_token": 0.5}, MIXED, 400),
        ("mixed_attention", {"task_us": 9}, MIXED, 18),
        ("mixed_attention", {"task_us_per_kv_token": 0.5}, MIXED, 540),
        ("mixed_attention", {"task_us": 8, "us_per_seq": 8, "ragged_share": 0.25}, MIXED, 36),
        (
            "mixed_attention",
            {"us_per_spilled_kv_token": 0.5, "spill_kv_tokens": 300, "spill_seqs": 1},
            MIXED,
            2 * 0.5 * 100 * 0.5,
        ),
        # a step of decodes is a mixed call only if one verifies drafts
        ("mixed_attention", {"us_per_seq": 3}, (decode(0, 100), decode(1, 300)), 0),
        ("mixed_attention", {"us_per_seq": 3}, (decode(0, 99, drafts=2), decode(1, 300)), 12),
    ],
)
def test_each_coefficient_alone(
    part: str, values: dict[str, Any], work: tuple[Work, ...], us: float
) -> None:
    assert step(cost({part: values}), *work).duration_ps == round(us * US)


def test_the_longest_decode_ends_later_only_where_kv_is_not_split() -> None:
    parts = {"us_per_kv_token": 1, "us_if_whole": 5, "us_per_uneven_token": 1.5}
    work = (decode(0, 100), decode(1, 300))
    split = cost({"decode_attention": {**parts, "whole_from_seqs": 3}})
    whole = cost({"decode_attention": {**parts, "whole_from_seqs": 2}})
    assert step(split, *work).duration_ps == 2 * 400 * US
    assert step(whole, *work).duration_ps == 2 * (400 + 5 + 150) * US  # 300 is 100 above the mean


def test_axes_outside_the_fit_are_named() -> None:
    model = cost()
    assert step(model, decode(0, 20), chunk(1, 500)).outside == ()
    assert step(model, chunk(0, 513)).outside == ("tokens",)
    many = [decode(i, 20) for i in range(65)]
    assert step(model, *many).outside == ("sampled_rows", "decode_seqs")
    assert step(model, decode(0, 15)).outside == ("kv_tokens_per_decode",)
    assert step(model, decode(0, 1500), decode(1, 500)).outside == ()  # the mean counts
    assert step(model, chunk(0, 8, 1025)).outside == ("prefill_past",)
    assert step(model, *(decode(i, 1000) for i in range(10))).outside == ("kv_tokens",)
    assert step(model).outside == ()


def test_axis_range_of_known_and_unknown_axes() -> None:
    assert cost().axis_range("tokens") == (1.0, 512.0)
    with pytest.raises(UnknownChoiceError, match=r"unknown axis 'token'.*did you mean 'tokens'"):
        cost().axis_range("token")


def test_describe_names_engine_source_and_error() -> None:
    line = cost().describe()
    for word in ("vllm 0.19.0", "toy on card", "r 0123456", "median 2.0%", "p90 6.0%"):
        assert word in line


def test_another_deployment_is_refused_with_every_difference() -> None:
    other = Deployment(dataclasses.replace(MODEL, name="toy-2"), CARD, tp=2, engine="sglang")
    with pytest.raises(CostMismatchError) as refused:
        cost().bind(other)
    message = str(refused.value)
    for word in ("model='toy-2' (fitted for 'toy')", "tp=2 (fitted for 1)", "engine='sglang'"):
        assert word in message
    assert "\n" not in message
    assert "gpu=" not in message
    kv = Deployment(MODEL, CARD, kv_dtype="fp8")
    with pytest.raises(CostMismatchError, match=r"kv_dtype='fp8' \(fitted for 'bf16'\)"):
        cost().bind(kv)


def test_allow_mismatch_binds_with_the_other_models_layers() -> None:
    deep = Deployment(dataclasses.replace(MODEL, name="deep", num_layers=6), CARD)
    timer = cost({"decode_attention": {"us": 3}}, allow_mismatch=True).bind(deep)
    assert timer.step_time(StepPlan((decode(0, 50),))).duration_ps == 18 * US


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("once", {"us": -1}, r"coefficients.once.us=-1: must be 0 or more"),
        ("once", {"us": "x"}, r"coefficients.once.us='x'"),
        ("once", {"us_per_tokn": 1}, r"once.us_per_tokn=1: is unknown.*mean 'us_per_token'"),
        ("dense", {"us": [5, -1]}, r"coefficients.dense.us=-1"),
        ("dense", {"us": [5, 4]}, r"coefficients.dense.us=.*must not fall"),
        ("dense", {"us": [5]}, r"coefficients.dense.us=.*one value for each of knots_tokens"),
        ("dense", {"knots_tokens": [2, 2]}, r"coefficients.dense.knots_tokens=.*increase"),
        ("dense", {"us": 5}, r"coefficients.dense.us=5: must be a list"),
        ("once", {"us": [5]}, r"coefficients.once.us=\[5\]: must be a finite number"),
        ("dense", {"tile_share": 1.5}, r"coefficients.dense.tile_share=1.5"),
        ("dense", {"tile_tokens": 0}, r"coefficients.dense.tile_tokens=0"),
        ("mixed_attention", {"tile_queries": 0.5}, r"mixed_attention.tile_queries=0.5"),
        ("decode_attention", {"us_per_uneven_token": 1}, r"us_per_uneven_token=1: .*cheaper"),
    ],
)
def test_wrong_coefficients_are_named(part: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        cost({part: values})


def test_missing_coefficients_parts_and_facts_are_named() -> None:
    tree = copy.deepcopy(NOTHING)
    del tree["mixed_attention"]["ragged_share"]
    with pytest.raises(SettingError, match=r"mixed_attention.ragged_share=None: is missing"):
        cost(coefficients=tree)
    del tree["mixed_attention"]
    with pytest.raises(SettingError, match=r"coefficients.mixed_attention=None: is missing"):
        cost(coefficients=tree)
    with pytest.raises(SettingError, match=r"fitted_on.gpu=None: is missing"):
        cost(fitted_on={"model": "toy"})
    with pytest.raises(SettingError, match=r"fit_range.tokens=.*smallest, largest"):
        cost(fit_range={**RANGE, "tokens": 512})


LIKE_MEASURED = cost(
    {
        "dense": {"knots_tokens": [1, 64, 512], "us": [300, 340, 700], "tile_share": 0.7},
        "once": {"us": 5, "us_per_token": 0.01},
        "head": {"knots_rows": [1, 64], "us": [700, 760]},
        "decode_attention": {
            "us": 12,
            "us_per_seq": 0.03,
            "us_per_kv_token": 0.0027,
            "us_per_first_kv_token": 0.0003,
            "first_kv_tokens": 3000,
            "whole_from_seqs": 5,
            "us_if_whole": 9,
            "us_per_uneven_token": 0.0135,
        },
        "mixed_attention": {
            "task_us": 4,
            "task_us_per_kv_token": 0.022,
            "us_per_launched_tile": 0.05,
            "us_per_tile": 1,
            "us_per_tile_kv_token": 0.0035,
            "us_per_seq": 0.8,
            "us_per_kv_token": 0.0038,
            "ragged_share": 0.45,
            "us_per_spilled_kv_token": 0.01,
            "spill_kv_tokens": 4000,
            "spill_seqs": 4,
        },
    }
)
CONTEXTS = st.lists(st.integers(1, 3000), min_size=1, max_size=9)
CHUNKS = st.lists(st.tuples(st.integers(2, 400), st.integers(0, 2000)), max_size=3)


def batch(contexts: list[int], chunks: list[tuple[int, int]]) -> tuple[Work, ...]:
    decodes = tuple(decode(i, context) for i, context in enumerate(contexts))
    return decodes + tuple(chunk(100 + i, n, p) for i, (n, p) in enumerate(chunks))


@given(CONTEXTS, CHUNKS, st.integers(0, 8), st.integers(1, 2000), st.integers(1, 3000))
def test_no_axis_makes_a_step_shorter(
    contexts: list[int], chunks: list[tuple[int, int]], which: int, more: int, another: int
) -> None:
    def ps(contexts: list[int], chunks: list[tuple[int, int]]) -> int:
        return step(LIKE_MEASURED, *batch(contexts, chunks)).duration_ps

    before = ps(contexts, chunks)
    longer = list(contexts)
    longer[which % len(longer)] += more
    assert before <= ps(longer, chunks)
    assert before <= ps([*contexts, another], chunks)
    assert before <= ps(contexts, [*chunks, (1 + more, another)])
    if chunks:
        tokens, past = chunks[0]
        assert before <= ps(contexts, [(tokens + more, past), *chunks[1:]])
        assert before <= ps(contexts, [(tokens, past + more), *chunks[1:]])
