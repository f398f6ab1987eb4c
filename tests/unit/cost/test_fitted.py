"""Coefficients with round numbers: each part of a step by hand, checks, ranges, monotonicity."""

import copy
import dataclasses
from typing import Any

import pytest
from costs import (
    CARD,
    MODEL,
    NOTHING,
    ON_CARD,
    RANGE,
    US,
    chunk,
    cost,
    decode,
    step,
)

import servesim
from servesim.cost.fit_range import FitRange
from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError, UnknownChoiceError
from servesim.records import Decodes, StepPlan, Work

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
        # a chunk takes no less than its last token would as a decode: 3 + 64 × 0.5
        ("decode_attention", {"us": 3, "us_per_kv_token": 0.5}, (chunk(0, 64),), 2 * 35),
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
    assert step(model, chunk(0, 8, 1025)).outside == ("prefill_past",)
    assert step(model, *(decode(i, 1000) for i in range(10))).outside == ("kv_tokens",)
    assert step(model).outside == ()


def test_one_long_context_is_outside_however_short_the_others_are() -> None:
    model = cost()
    short = [decode(i, 20) for i in range(1, 50)]
    assert step(model, decode(0, 1024), *short).outside == ()
    assert step(model, decode(0, 1025), *short).outside == ("longest_decode_context",)
    group = Decodes(50, 1025 + 49 * 20, 1025)
    timer = model.bind(ON_CARD)
    assert timer.step_time(StepPlan((), decodes=group)).outside == ("longest_decode_context",)
    assert step(model, chunk(0, 512, 1024), *short).outside == ("tokens",)
    assert step(model, chunk(0, 300, 1024), chunk(1, 20), *short).outside == ()
    long = chunk(0, 513, 1024)
    assert step(model, long).outside == ("tokens", "longest_prefill_context")


def test_contexts_below_what_was_measured_are_outside() -> None:
    contexts = ("longest_decode_context", "longest_prefill_context", "kv_tokens")
    model = cost(fit_range=RANGE | {axis: [17, 1024] for axis in contexts})
    assert step(model, decode(0, 16)).outside == ("longest_decode_context", "kv_tokens")
    assert step(model, decode(0, 16), decode(1, 17)).outside == ()
    assert step(model, chunk(0, 16)).outside == ("longest_prefill_context", "kv_tokens")
    assert step(model).outside == ()


def test_a_context_within_one_kv_block_is_measured_where_a_whole_block_is() -> None:
    assert RANGE["longest_decode_context"][0] == RANGE["longest_prefill_context"][0] == 16
    assert step(cost(), decode(0, 1)).outside == step(cost(), chunk(0, 2)).outside == ()
    coarse = cost(fit_range={**RANGE, "tokens": [16, 512]})  # that is no context
    assert step(coarse, decode(0, 100)).outside == ("tokens",)


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
    assert (
        "does not hold for model toy-2 instead of toy, tp 2 instead of 1, engine sglang" in message
    )
    assert "\n" not in message
    assert "gpu" not in message
    kv = Deployment(MODEL, CARD, kv_dtype="fp8")
    with pytest.raises(CostMismatchError, match=r"for kv_dtype fp8 instead of bf16; choose"):
        cost().bind(kv)


def test_a_mismatch_is_told_in_words_whether_allowed_or_not() -> None:
    other = Deployment(dataclasses.replace(MODEL, name="toy-2"), CARD, tp=2)
    for allowed in (False, True):
        model = cost(allow_mismatch=allowed)
        assert model.mismatch(ON_CARD) == ""
        assert model.mismatch(other) == "model toy-2 instead of toy, tp 2 instead of 1"


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


@pytest.mark.parametrize(
    "setting",
    [
        "coefficients",
        "coefficients.dense",
        "coefficients.dense.us",
        "coefficients.once.us",
        "fit_range",
        "fit_range.tokens",
        "fitted_on",
        "fitted_on.model",
        "fitted_on.tp",
        "source",
        "source.commit",
        "held_out_error",
        "held_out_error.step",
        "held_out_error.step.median",
        "allow_mismatch",
    ],
)
def test_nothing_where_something_must_be_is_one_line(setting: str) -> None:
    with pytest.raises(SettingError, match=rf"^cost\.{setting}=None: must be .*$"):
        servesim.simulate(f"cost.{setting}=null")


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
    with pytest.raises(SettingError, match=r"fit_range.tokens=.*must not fall"):
        cost(fit_range={**RANGE, "tokens": [3, 2]})
    with pytest.raises(SettingError, match=r"fit_range.token=.*is unknown.*mean 'tokens'"):
        cost(fit_range={**RANGE, "token": [1, 2]})
    with pytest.raises(SettingError, match=r"fit_range.tokens=None: is missing"):
        FitRange({axis: bounds for axis, bounds in RANGE.items() if axis != "tokens"})
    with pytest.raises(SettingError, match=r"source.commit=1234567: must be text"):
        cost(
            source={**dict.fromkeys(("repository", "licence", "files"), "x"), "commit": 1234567}
            | {"engine_version": "0", "fitted_at": "2026-01-01"}
        )


def test_the_host_is_what_was_left_beside_the_kernels_whatever_the_engine_hides() -> None:
    """Two layers of 170 µs, and a host of 100 µs."""
    model = cost({"dense": {"us": [170, 170]}, "host": {"us": 98, "us_per_seq": 2}})
    plan, overlapped = StepPlan((decode(0, 20),)), dataclasses.replace(ON_CARD, overlaps_host=True)
    assert model.bind(ON_CARD).step_time(plan).duration_ps == 440 * US
    assert model.bind(overlapped).step_time(plan).duration_ps == 440 * US
