"""Slots held and not used, by hand and from a run."""

from dataclasses import replace

import pytest
from serving import MS, engine, request, serve

import servesim
from servesim.metrics.base import needs_steps
from servesim.metrics.batch import Batch
from servesim.metrics.kv_waste import KVWaste
from servesim.records import StepRecord

SMALL = ("workload=fixed", "workload.num_requests=6", "cost=roofline", "metrics=[outcome,kv_waste]")


def step(duration, blocks, unused):
    return StepRecord(0, duration, 1, 0, 0, 1, 0, 0, blocks, unused)


def waste(*steps, block_size=16):
    run = replace(serve([request(0)]), steps=steps, block_size=block_size)
    return KVWaste().measure(run)["kv_waste"]


def test_steps_weigh_as_long_as_they_take():
    # (3 · 10 + 1 · 20) of (1 · 10 + 2 · 20) blocks of 4 slots
    assert waste(step(10, 1, 3), step(20, 2, 1), block_size=4) == 50 / 200


def test_nothing_held_is_no_value():
    assert waste() is None
    assert waste(step(10, 0, 0)) is None


def test_paged_blocks_waste_only_their_ends():
    # 6 tokens in 2 blocks of 4, then 7, 8, and 9 in 3: 2 + 1 + 0 + 3 of 8 + 8 + 8 + 12 slots
    record = serve([request(0, 0, 6, 4)], engine(block_size=4), keep_steps=True)
    assert record.block_size == 4
    assert KVWaste().measure(record) == {"kv_waste": 6 / 36}


def test_preempted_requests_hold_nothing():
    requests = [request(i, i * MS, 30, 40) for i in range(12)]
    runs = [
        serve(requests, engine(blocks=40, max_model_len=96, stepwise=stepwise), keep_steps=True)
        for stepwise in (True, False)
    ]
    first, second = (KVWaste().measure(run)["kv_waste"] for run in runs)
    assert sum(r.preemptions for r in runs[0].requests) > 0
    assert first == second
    assert 0 < first < 0.1


def test_a_run_keeps_the_steps_that_a_metric_needs_and_no_longer():
    assert needs_steps(KVWaste())
    assert not needs_steps(Batch())
    plain, kept = servesim.simulate(*SMALL), servesim.simulate(*SMALL, keep_steps=True)
    assert 0 < plain.summary["kv_waste"] < 1
    assert plain.summary == kept.summary
    assert plain.steps.empty
    assert len(kept.steps) == kept.record.totals.steps
    assert replace(kept.record, steps=()) == plain.record


@pytest.mark.parametrize("scheduler", ["vllm_v1", "orca_oracle", "orca_pow2", "orca_max", "static"])
def test_waste_follows_from_steps_parquets_columns(scheduler):
    result = servesim.simulate(
        *SMALL, f"scheduler={scheduler}", "max_model_len=4096", keep_steps=True
    )
    steps, size = result.steps, result.record.block_size
    held = (steps["kv_blocks_used"] * steps["duration_s"]).sum() * size
    unused = (steps["kv_slots_unused"] * steps["duration_s"]).sum()
    assert result.summary["finished"] == 6
    assert result.summary["kv_waste"] == pytest.approx(unused / held)


def test_the_paper_s_order_of_wastes():
    load = (*SMALL, "workload.num_requests=30", "workload.rate_rps=5", "max_model_len=4096")
    wastes = [
        servesim.simulate(*load, f"scheduler={scheduler}").summary["kv_waste"]
        for scheduler in ("vllm_v1", "orca_oracle", "orca_pow2", "orca_max")
    ]
    assert wastes == sorted(wastes)
    assert wastes[0] < 0.05 < wastes[-1]
