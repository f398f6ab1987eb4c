"""Data-parallel ranks on the command line: what is refused, what is told, what it agrees with."""

import pytest

import servesim
from servesim.app.api import setup_from
from servesim.app.compose import composed
from servesim.app.size_setup import sizing_of
from servesim.errors import SettingError

MOE = ("model=qwen3_30b_a3b", "cost=roofline")
LOAD = ("workload=fixed", "workload.num_requests=40", "workload.rate_rps=20")
CLOSED = ("workload=closed_loop", "workload.num_requests=40", "workload.concurrency=11")
SMALL = ("scheduler.max_num_seqs=4", "scheduler.max_num_batched_tokens=512")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("cost=roofline",), "has no experts to share.*nearest: dp=1"),
        ((*MOE, "scheduler=sglang"), "sglang has no ranks in lock-step.*scheduler=vllm_v1"),
        ((*MOE, "scheduler=hf"), "hf has no ranks in lock-step"),
        (
            ("model=qwen3_30b_a3b", "cost.allow_mismatch=true"),
            "cost=llama3.1_8b_rtx_pro_6000 knows nothing of experts.*cost=roofline",
        ),
    ],
)
def test_what_has_no_ranks_in_lock_step_is_refused(settings, told):
    with pytest.raises(SettingError, match=f"^dp=2: .*{told}"):
        servesim.simulate("dp=2", *settings, *LOAD)


@pytest.mark.parametrize("dp", [1, 2, 8])
@pytest.mark.parametrize("scheduler", ["vllm_v1", "vllm_v1_0.11"])
def test_each_rank_has_the_blocks_that_sizing_says(dp, scheduler):
    chosen = (f"dp={dp}", f"scheduler={scheduler}", "model=qwen3_30b_a3b", "hardware=h100_sxm")
    sized = sizing_of(composed([*chosen, "max_model_len=8192"], root="size"))
    budget = setup_from(*chosen, "cost=roofline", "max_model_len=8192").budget()
    assert budget.num_gpu_blocks == sized.budget.num_gpu_blocks
    assert budget.weight_bytes == sum(part.rank_bytes for part in sized.weights)


def test_a_rank_holds_its_share_of_the_experts_and_all_else():
    whole, half = (setup_from(*MOE, f"dp={dp}").budget().weight_bytes for dp in (1, 2))
    assert whole - half == 48 * 128 * 3 * 2048 * 768 * 2 / 2


@pytest.mark.parametrize("ahead", ["true", "false"])
@pytest.mark.parametrize("load", [LOAD, CLOSED], ids=["open", "closed"])
def test_skipping_changes_no_number(ahead, load):
    chosen = ("dp=2", *MOE, *load, *SMALL, f"scheduler.async_scheduling={ahead}")
    skipped, stepped = (servesim.simulate(*chosen, f"stepwise={s}") for s in ("false", "true"))
    assert skipped.summary["steps_skipped"] > 0
    assert skipped.record == stepped.record


def test_ranks_are_told_in_the_summary_and_by_request():
    result = servesim.simulate("dp=2", *MOE, *LOAD, "policies/routing=round_robin")
    assert (result.summary["dp"], result.summary["routing"]) == (2, "round_robin")
    assert result.requests["rank"].tolist() == [0, 1] * 20
    assert any("2 data-parallel ranks in lock-step" in note for note in result.notes)


def test_one_rank_says_nothing_of_ranks():
    result = servesim.simulate(*MOE, *LOAD)
    assert "dp" not in result.summary
    assert set(result.requests["rank"]) == {0}
