"""Every kernel cost binds to the deployment of its name, and times grow with the batch."""

from pathlib import Path
from typing import Any

import pytest
import yaml
import yamls

from servesim.app.api import setup_from
from servesim.cost.kernels import Kernels
from servesim.errors import CostMismatchError
from servesim.records import StepPlan, Work
from validation.fit.batch import PLAN, planned
from validation.fit.kernels import deployments

FILES = sorted((yamls.CONF / "cost" / "kernels").glob("*.yaml"))
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def decodes(seqs: int, context: int) -> tuple[Work, ...]:
    return tuple(Work(i, 1, context - 1, 0, True) for i in range(seqs))


def chunk(tokens: int, past: int) -> tuple[Work, ...]:
    return (Work(10_000, tokens, past, 0, True),)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_binds_and_larger_steps_take_longer(path: Path):
    tree = yaml.load(path.read_text(), Loader=_LOADER)
    on = tree["fitted_on"]
    cost = Kernels(**{key: value for key, value in tree.items() if not key.startswith("_")})
    hardware = next(p.stem for p in yamls.of("hardware") if f"name: {on['gpu']}\n" in p.read_text())
    named = (on["model"], on["tp"], on["dtype"], on["kv_dtype"], on["engine"])
    target = deployments.deployment(hardware, *named)
    assert cost.mismatch(target) == ""
    assert path.stem.startswith(f"{on['engine']}_{hardware}_")
    assert f"_tp{on['tp']}_{on['dtype']}" in path.stem
    assert cost.held_out_error["step"]["median"] < 0.05
    timer = cost.bind(target)
    plans = [decodes(1, 100), decodes(8, 100), decodes(8, 3000), decodes(100, 3000)]
    plans += [decodes(100, 3000) + chunk(512, 0), decodes(100, 3000) + chunk(2000, 0)]
    plans += [decodes(100, 3000) + chunk(2000, 9000), decodes(200, 30_000) + chunk(9000, 90_000)]
    times = [timer.step_time(StepPlan(work)).duration_ps for work in plans]
    assert times == sorted(times)
    assert times[0] > 10**9  # 1 ms: no model here steps faster
    assert times[-2] < 2 * 10**12  # 2 s


def test_the_files_are_those_of_the_plan():
    names = {one.name for one in planned(PLAN) if one.impossible() is None}
    assert {path.stem for path in FILES} == names


def test_it_is_an_option_of_the_command_line():
    setup = setup_from(
        "cost=kernels/vllm_h100_sxm_llama3.1_70b_tp4_fp8",
        *("model=llama3.1_70b", "hardware=h100_sxm", "tp=4", "dtype=fp8", "kv_dtype=bf16"),
    )
    assert isinstance(setup.cost, Kernels)
    assert setup.cost.mismatch(setup.deployment) == ""


def test_a_cost_of_another_engine_wants_it_named():
    chosen = (
        "cost=kernels/sglang_h100_sxm_llama3.1_8b_tp1_bf16",
        *("model=llama3.1_8b", "hardware=h100_sxm", "scheduler=sglang"),
    )
    setup = setup_from(*chosen, "engine=sglang")
    assert setup.cost.bind(setup.deployment).step_time(StepPlan(decodes(1, 100))).duration_ps > 0
    vllm = setup_from(*chosen)
    with pytest.raises(CostMismatchError, match="does not hold for engine vllm instead of sglang"):
        vllm.cost.bind(vllm.deployment)
