"""Kernel tables of an operator profile that the test makes from formulas."""

from itertools import product

import numpy as np
import pytest

from servesim.cost.kernels import Kernels
from servesim.errors import SettingError
from servesim.records import StepPlan, Work
from validation.fit.kernels import deployments, profile_cost, profiles
from validation.fit.result import rounded_tables
from validation.fit.sources.llmservingsim import Request
from validation.sources.llmservingsim import Profile

GRID = [16, 128, 1024, 4096]
BETWEEN = [768, 2592]  # 512 × 1.5 and so on, as a profile has them
LAYERS = 32


def attention_us(chunk: float, past: float, seqs: float, kv: float) -> float:
    """Linear in the past and in all KV of the decodes."""
    return 8 + 0.01 * chunk + 1e-5 * chunk * past + 0.05 * seqs + 0.002 * seqs * kv


def profile(skew: bool = False, experts: bool = False) -> Profile:
    lengths = [*GRID, *BETWEEN]
    cells = [(0, 0, n, kv) for n, kv in product([1, 4, 64], lengths)]
    cells += [(c, p, 0, 0) for c, p in product([16, 256, 1024], [0, *lengths])]
    cells += product([16, 256, 1024], [0, *lengths], [1, 4, 64], lengths)
    columns = np.array([(*cell, attention_us(*cell)) for cell in cells], dtype=float).T
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    tokens = np.array([1.0, 64, 1024, 2048])
    reached = [(t, e) for t, e in product([1.0, 16, 256], [8.0, 64, 128]) if e <= 8 * t]
    uneven = {"n": 128, "nb": 8, "pc": 0, "kp": 0, "kv_big": 4096, "kv_mean": 512, "alpha": 0.05}
    return Profile(
        model="meta-llama/Llama-3.1-8B",
        engine_version="0.19.0",
        files="profiler/perf",
        tokens=tokens,
        layer_us=400 + tokens,
        once_us=5 + 0 * tokens,
        rows=np.array([1.0, 64, 128]),
        head_us=np.array([700.0, 710, 730]),
        attention=dict(zip(names, columns, strict=True)),
        skew={name: np.array([float(value)]) for name, value in uneven.items()} if skew else {},
        gpu_memory_utilization=0.9,
        moe={
            "tokens": np.array([t for t, _ in reached]),
            "activated_experts": np.array([e for _, e in reached]),
            "time_us": np.array([6.0 * e for _, e in reached]),
        }
        if experts
        else {},
    )


def target(model: str = "llama3.1_8b"):
    return deployments.deployment("rtx_pro_6000", model, 1, "bf16", "bf16", "vllm")


def timer(tables):
    tree = {
        "fitted_on": {"model": "x", "gpu": "x", "tp": 1, "dtype": "x", "kv_dtype": "x"}
        | {"engine": "x"},
        "source": dict.fromkeys(
            ("repository", "commit", "licence", "files", "engine_version", "fitted_at"), "x"
        ),
        "fit_range": profile_cost.ranges(profile()),
        "held_out_error": {"step": {"median": 0, "p90": 0, "worst": 0}},
    }
    cost = Kernels(**tree, tables=tables, graphs={"sizes": []}, host={}, allow_mismatch=True)
    return cost.bind(target())


def test_a_step_is_what_was_measured_of_its_parts():
    of = timer(rounded_tables(profiles.tree(profile(), target(), 188, None)))
    work = [Work(i, 1, 1023, 0, True) for i in range(64)]
    parts = of.parts_us(StepPlan((*work, Work(99, 256, 1024, 0, True))))
    assert parts["attention"] == pytest.approx(LAYERS * attention_us(256, 1024, 64, 1024), rel=1e-3)
    assert parts["dense"] == pytest.approx(LAYERS * (400 + 320) + 5, rel=1e-3)
    assert parts["head"] == pytest.approx(710 + 20 / 64, rel=1e-3)  # 65 rows


def test_it_is_checked_on_calls_that_are_not_in_the_tables():
    made = profile()
    of = timer(rounded_tables(profiles.tree(made, target(), 188, None)))
    parts = {part.name: part.summary() for part in profiles.step_parts(made, of, LAYERS, 1e6)}
    # decodes 3 × 2; both: 3 × 3 × (7 pasts × 6 contexts - the tables' 4 × 4)
    assert parts["decode_step"]["points"] == 6
    assert parts["mixed_step"]["points"] == 9 * (42 - 16)
    assert parts["step"]["worst"] < 0.02  # all terms are linear between the knots


def test_uneven_lengths_count_as_so_many_sequences():
    tables = profiles.tree(profile(skew=True), target(), 188, None)
    # 1.6 × 188 tasks of 8 KV heads are 37.6 sequences; alpha 0.05 of 128 sequences is 6.4 of them
    assert tables["uneven"] == {"seqs_equivalent": pytest.approx(6.4), "whole_from_seqs": 38}


def test_experts_are_read_at_those_that_tokens_reach():
    table = profiles.tree(profile(experts=True), target(), 188, None)["moe"]
    assert table["experts"].tolist() == [8, 64, 128]
    assert table["us"][1].tolist() == [LAYERS * 48, LAYERS * 384, LAYERS * 768]


def test_all_reduces_have_to_come_from_somewhere():
    ranks = deployments.deployment("rtx_4090", "llama3.1_8b", 2, "bf16", "bf16", "vllm")
    asked = Request("RTX4090", "Llama-3.1-8B", tp=2)
    with pytest.raises(SettingError, match="all_reduce_us"):
        profile_cost.all_reduces(asked, ranks, np.array([1.0, 100]), 512)
    given = Request("RTX4090", "Llama-3.1-8B", tp=2, all_reduce_us=10, all_reduce_us_per_token=0.1)
    link, origin = profile_cost.all_reduces(given, ranks, np.array([1.0, 100]), 512)
    assert link["us"].tolist() == pytest.approx([65 * 10.1, 65 * 20])
    assert "stated" in origin
