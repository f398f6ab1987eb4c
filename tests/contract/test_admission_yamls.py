"""Every admission policy keeps its seam's promise, and what it refuses is told."""

from dataclasses import fields, is_dataclass, replace

import pytest
import yamls
from hydra.utils import instantiate

import servesim
from servesim.__main__ import main
from servesim.policies.admission.base import EngineLoad
from servesim.records import Request

SOMEBODY = Request(0, 0, prompt_tokens=100, output_tokens=50, max_tokens=200)
IDLE = EngineLoad(num_waiting=0, num_running=0, kv_blocks=1000, kv_blocks_used=0)
FLOODED = EngineLoad(num_waiting=10**6, num_running=256, kv_blocks=1000, kv_blocks_used=1000)
LOAD = (
    *("cost=roofline", "workload=fixed", "workload.num_requests=60", "workload.rate_rps=50"),
    *("scheduler.max_num_seqs=2", "kv.num_gpu_blocks=260", "max_model_len=4096"),
)


def made(path):
    return instantiate(yamls.tree(path), _convert_="all")


@yamls.each("policies/admission")
def test_a_policy_is_nobody_or_a_frozen_value_whose_fields_are_its_yaml(path):
    assert path.read_text().startswith("# ")
    policy = made(path)
    if policy is None:
        assert path.stem == "everyone"
        return
    assert is_dataclass(policy)
    assert policy.__dataclass_params__.frozen
    assert set(yamls.tree(path)) == {"_target_", *(field.name for field in fields(policy))}
    assert policy == made(path)


@yamls.each("policies/admission")
def test_an_idle_engine_refuses_nobody_and_a_flooded_one_says_why(path):
    policy = made(path)
    if policy is None:
        return
    assert policy.refuse(SOMEBODY, IDLE) is None
    reason = policy.refuse(SOMEBODY, FLOODED)
    assert reason.startswith("HTTP 503: ")
    assert "\n" not in reason
    assert reason == made(path).refuse(SOMEBODY, FLOODED)


@yamls.each("policies/admission")
def test_the_length_of_the_reply_is_not_looked_at(path):
    policy = made(path)
    loads = [IDLE, FLOODED, *(EngineLoad(n, n, 1000, 10 * n) for n in range(0, 101, 5))]
    if policy is not None:
        longer = replace(SOMEBODY, output_tokens=10_000)
        answers = [policy.refuse(SOMEBODY, load) for load in loads]
        assert answers == [policy.refuse(longer, load) for load in loads]


@yamls.each("policies/admission")
def test_nobody_is_lost_at_the_door(path):
    summary = servesim.simulate(f"policies/admission={path.stem}", *LOAD).summary
    assert summary["admission"] == path.stem
    assert summary["finished"] + summary["rejected"] == summary["requests"] == 60
    assert summary["finished"] >= 1


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (
            ("policies/admission=queue_limit", "policies.admission.max_queued_reqs=2"),
            "HTTP 503: num_waiting >= max_queued_reqs 2",
        ),
        (
            ("policies/admission=kv_headroom", "policies.admission.max_kv_use=0.2"),
            "HTTP 503: kv_use >= max_kv_use 0.2",
        ),
    ],
)
def test_the_refused_are_printed_with_their_reason_and_lower_the_attainment(
    overrides, reason, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    summary = servesim.simulate(*overrides, *LOAD).summary
    rejected = summary["rejected"]
    assert rejected > 0
    assert summary["slo_attainment"] <= summary["finished"] / 60
    assert main([*overrides, *LOAD, "output.files=false"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"warning: {rejected} of 60 requests rejected ({reason})" in printed


def test_settings_that_cannot_be_are_refused_by_their_full_name(capsys):
    assert main(["policies/admission=queue_limit", "policies.admission.max_queued_reqs=0"]) == 2
    assert main(["policies/admission=kv_headroom", "policies.admission.max_kv_use=90"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: policies.admission.max_queued_reqs=0: must be 1 or more"
    assert second == "error: policies.admission.max_kv_use=90: must be in (0, 1]"
