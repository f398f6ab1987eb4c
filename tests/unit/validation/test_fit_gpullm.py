"""Saturation runs: their steps by hand, known coefficients, and stamped steps no fit has seen."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from servesim.app.api import setup_from
from servesim.cost.kernels import Kernels
from servesim.errors import UnknownChoiceError
from servesim.records import Decodes, StepPlan, Work
from servesim.units import PS_PER_US
from validation.cases.converters import gpullm as cases
from validation.fit import saturated
from validation.fit.kernels import deployments
from validation.fit.lockstep_runs import recorded
from validation.fit.saturated import Size, Target
from validation.fit.sources import gpullm
from validation.fit.sources.gpullm import Request, fit

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SERVESIM_DATA", ROOT.parent / "shared" / "data")) / gpullm.FOLDER
SETTINGS = (
    *("model=llama3.1_8b", "hardware=h100_64gb_hbm2", "cost=roofline", "scheduler=vllm_v1"),
    *("workload=fixed", "workload.rate_rps=inf", "kv.num_gpu_blocks=1000"),
    *("scheduler.max_num_batched_tokens=2048", "scheduler.async_scheduling=false"),
)
TRUTH = {"us_per_gb": 800.0, "us_per_gflop": 1.5, "corner": 1.5, "us_per_sent": 1000.0}
TRUTH |= {"m.us_per_kv_token": 0.07, "m.us_per_seq": 6.0, "m.eager_us": 2500.0}
SIZE = Size(15.0, 15.0)


def lockstep(requests: int, seqs: int, prompt: int, output: int) -> Any:
    return recorded(
        setup_from(
            *SETTINGS,
            f"scheduler.max_num_seqs={seqs}",
            f"workload.num_requests={requests}",
            f"workload.prompt.tokens={prompt}",
            f"workload.output.tokens={output}",
        )
    )


def test_steps_of_three_requests_two_at_a_time():
    run = lockstep(requests=3, seqs=2, prompt=5, output=3)
    # two prompts, two decodes of both, then the same of the third alone
    found = {
        (p.num_tokens, p.num_seqs, p.decodes): n for p, n in zip(run.plans, run.steps, strict=True)
    }
    assert found == {
        (10, 2, Decodes(0, 0, 0)): 1,
        (2, 2, Decodes(2, 12, 6)): 1,
        (2, 2, Decodes(2, 14, 7)): 1,
        (5, 1, Decodes(0, 0, 0)): 1,
        (1, 1, Decodes(1, 6, 6)): 1,
        (1, 1, Decodes(1, 7, 7)): 1,
    }
    us = np.array([10.0 * plan.num_tokens for plan in run.plans])
    assert run.makespan_us(us) == 100 + 20 + 20 + 50 + 10 + 10
    # gaps: four of 20 us, two of 10 us
    assert run.replies == 6
    assert run.itl_us(us) == pytest.approx(100 / 6)


def target(tokens: float, steps: float, what: str, group: str) -> Target:
    eager = steps if tokens > 512 else 0.0
    parts = (np.array([tokens]), np.array([steps]), steps * 7 * tokens, steps * 100 * tokens)
    sent = 4096.0 if what == "makespan" else 0.0
    made = Target("run", what, "m", group, *parts, steps * tokens, eager, sent, 1.0)
    us = saturated.predicted_us(made, SIZE, TRUTH)
    return Target(**{**made.__dict__, "us": us})


def test_known_coefficients_predict_what_was_held_out():
    sizes = (1, 50, 100, 200, 400, 600, 800, 1000, 2048)
    targets = [target(n, 1, "itl", f"{n}") for n in sizes]
    targets += [target(n, 1000, "makespan", f"{n}") for n in sizes]
    found = saturated.fit_values(targets, {"m": SIZE})
    assert found["us_per_sent"] == pytest.approx(TRUTH["us_per_sent"], rel=0.05)
    errors = saturated.held_out_errors(targets, {"m": SIZE})
    assert np.abs(errors).max() < 0.02


def test_a_formula_by_hand():
    values = TRUTH | {"corner": 2.0, "us_per_gb": 3.0, "us_per_gflop": 4.0}
    assert saturated.products_us(np.array([1.0]), Size(1.0, 1.0), values) == pytest.approx(5.0)


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    path = ROOT / "conf" / "cost" / "llama3.1_8b_h100_64gb_hbm2.yaml"
    return dict(yaml.safe_load(path.read_text()))


def test_the_shipped_tables_are_the_formula(shipped: dict[str, Any]):
    on = deployments.deployment("h100_64gb_hbm2", "llama3.1_8b", 1, "bf16", "bf16", "vllm")
    cost = Kernels(**{k: v for k, v in shipped.items() if not k.startswith("_")})
    found = shipped["source"]["coefficients"]
    own = {f"m.{name}": found[name] for name in saturated.OWN}
    size = Size(
        *(f * (on.model.num_parameters - on.model.embedding_parameters) / 1e9 for f in (2, 2))
    )
    for seqs, context, eager in ((400, 40_000, 0), (1024, 100_000, 1)):
        plan = StepPlan((), decodes=Decodes(seqs, context, context // seqs))
        short = {400: 2145 + (4077 - 2145) * (400 - 256) / 256, 1024: 6789.0}[seqs]
        parts = (np.array([float(seqs)]), np.ones(1), short, context, seqs, eager, 0, 1.0)
        expected = saturated.predicted_us(Target("", "", "m", "", *parts), size, found | own)
        us = cost.bind(on).step_time(plan).duration_ps / PS_PER_US
        assert us == pytest.approx(expected, rel=0.005)


def test_a_model_that_the_table_lacks(tmp_path: Path):
    columns = [*dict.fromkeys((*cases.COLUMNS, *gpullm.source.RUN_COLUMNS))]
    row = dict.fromkeys(columns, "1.0") | {
        **{"model": "llama-3.1-8b-instruct", "phase": "output", "run": "_2__1_4"},
        **{"max_num_seqs": "2", "num_prompts": "4", "input_tokens_per_req": "5"},
        **{"kv_cache_tokens": "1600", "output_tokens_per_req": "4"},
    }
    lines = [",".join(columns), ",".join(row[name] for name in columns)]
    (tmp_path / gpullm.source.RUNS).write_text("\n".join(lines) + "\n")
    with pytest.raises(UnknownChoiceError, match=r"llama3\.1_8b"):
        fit(tmp_path, Request(model="qwen2.5_7b"))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs public measurements at {DATA}")
def test_converted_lengths_are_the_sources_own():
    pairs = zip(
        cases.convert(DATA / gpullm.source.RUNS), gpullm.source.read_runs(DATA), strict=True
    )
    for made, row in pairs:
        case = made.case
        assert case.workload.rate_rps == float("inf")
        assert case.workload.prompt.tokens == row.prompt_tokens
        assert case.workload.output.tokens == row.reply_tokens
        assert case.workload.num_requests == row.num_prompts
        assert case.limits.kv_cache_tokens == row.kv_tokens
        assert case.limits.max_num_seqs == row.max_num_seqs


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs public measurements at {DATA}")
def test_a_run_whose_steps_were_stamped_and_that_no_fit_has_seen(shipped: dict[str, Any]):
    """400 sequences, replies of 200 tokens: steps by the cost against the engine's time stamps."""
    stamps = gpullm.source.read_steps(DATA / "steps_llama-3.1-8b-instruct_output__400__1_200.csv")
    first = int(np.argmax(stamps.period_s)) + 1  # after the client's trial request and its start
    measured = stamps.period_s[first:] * 1e6
    on = deployments.deployment("h100_64gb_hbm2", "llama3.1_8b", 1, "bf16", "bf16", "vllm")
    timer = Kernels(**{k: v for k, v in shipped.items() if not k.startswith("_")}).bind(on)
    # 400 in step, one token of context more in each; the middle half of a wave
    decodes = [Decodes(400, 400 * (5 + k), 5 + k) for k in range(50, 150)]
    us = [timer.step_time(StepPlan((), decodes=d)).duration_ps / PS_PER_US for d in decodes]
    assert np.mean(us) == pytest.approx(np.median(measured[measured > 20_000]), rel=0.04)
    mixed = StepPlan(tuple(Work(i, 5, 0, 0, True) for i in range(400)))
    assert timer.step_time(mixed).duration_ps / PS_PER_US < 60_000
