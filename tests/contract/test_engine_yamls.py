"""Every engine profile and cache setting serves a small load to its end; every output prints."""

import pytest
import yamls

import servesim
from servesim.__main__ import main
from servesim.app.api import setup_from

SMALL = (
    "cost=roofline",
    "workload=shared_prefix",
    "workload.num_requests=40",
    "workload.rate_rps=20",
    "workload.prompt.max_tokens=2500",
    "max_model_len=4096",
)
SCARCE = "kv.num_gpu_blocks=800"
# whole requests are reserved here, and on this load the next one does not fit into what is left;
# of what is reserved, trtllm holds only what has been reached
FULL = {"orca": 0.93, "orca_oracle": 0.93, "trtllm": 0.92}


@yamls.each("scheduler")
@pytest.mark.parametrize("blocks", [(), (SCARCE,)], ids=["room for all", "memory is scarce"])
def test_a_scheduler_serves_everyone(path, blocks):
    result = servesim.simulate(f"scheduler={path.stem}", *SMALL, *blocks, keep_steps=True)
    assert result.summary["finished"] == 40
    requests, steps = result.requests, result.steps
    assert (requests["output_tokens"] == requests["requested_tokens"]).all()
    assert (steps["num_seqs"] > 0).any()
    tokens = (steps["prefill_tokens"] + steps["decode_tokens"]).sum()
    once = requests["prompt_tokens"] - requests["cached_tokens"] + requests["output_tokens"] - 1
    assert tokens == (once + requests["recomputed_tokens"]).sum()
    if blocks:
        assert result.summary["kv_use_max"] > FULL.get(path.stem, 0.95)


@yamls.each("scheduler")
def test_a_scheduler_is_a_value_and_describes_itself(path):
    first, again = (setup_from(f"scheduler={path.stem}") for _ in range(2))
    assert first.profile == again.profile
    line = first.profile.describe(first.engine(first.budget()))
    assert line.strip()
    assert "\n" not in line


@yamls.each("kv")
def test_a_cache_holds_what_it_says(path):
    setup = setup_from(f"kv={path.stem}")
    assert setup.kv == setup_from(f"kv={path.stem}").kv
    budget = setup.budget()
    assert budget.kv_cache_tokens >= setup.deployment.model.max_position_embeddings // 4
    assert str(budget.num_gpu_blocks) in budget.describe()
    result = servesim.simulate(f"kv={path.stem}", *SMALL, SCARCE)
    assert result.summary["finished"] == 40
    assert (result.summary["prefix_hit_tokens"] > 0) is setup.kv.enable_prefix_caching


@yamls.each("output")
def test_an_output_prints_and_ends_well(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([f"output={path.stem}", *SMALL, "workload.num_requests=3"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.strip()


HOW = {"steps_skipped"}  # tells how a run was carried out, not what happened in it


@yamls.each("scheduler")
@pytest.mark.parametrize("seed", [1, 2])
def test_skipping_changes_no_number_of_any_scheduler(path, seed):
    load = (f"scheduler={path.stem}", *SMALL, SCARCE, f"seed={seed}", "policies/order=priority")
    stepped, skipped = (
        servesim.simulate(*load, f"stepwise={stepwise}", keep_steps=True)
        for stepwise in ("true", "false")
    )
    assert skipped.record == stepped.record
    assert {k: v for k, v in skipped.summary.items() if k not in HOW} == {
        k: v for k, v in stepped.summary.items() if k not in HOW
    }
    assert stepped.summary["steps_skipped"] == 0
    assert skipped.summary["steps_skipped"] > 0
