"""Step by step beside the real scheduler.

`vllm_v0_0.6.6.json` was recorded from `vllm.core.scheduler.Scheduler` of the published wheel of
vllm 0.6.6.post1, stepped on a CPU with made-up tokens. A row has the tokens of each request in
the order of the batch, the running list and the swapped queue after scheduling, who left the
running list, and free blocks after scheduling and after the update. Two things differ from a
served engine: output is taken in before the next step is planned, and under the priority policy
the queue was sorted before every step.
"""

import json
from pathlib import Path

import pytest
from paged_stepping import GIB, setup

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.records import Request
from servesim.scheduler.vllm.v0 import VllmV0

TRACES = json.loads(Path(__file__).with_name("vllm_v0_0.6.6.json").read_text())


def started(config):
    order = {"fcfs": Fcfs(), "priority": Priority()}[config["policy"]]
    machine = setup(config["num_gpu_blocks"], config["block_size"], config["max_model_len"], order)
    profile = VllmV0(
        config["max_num_batched_tokens"],
        config["max_num_seqs"],
        config["enable_chunked_prefill"],
        config["preemption_mode"],
        config.get("num_cpu_blocks", 0) * config["block_size"] / GIB,
    )
    return profile.start(machine, stepwise=True)


def rows_of(trace):
    scheduler, todo, step = started(trace["config"]), list(trace["requests"]), 0
    while todo or scheduler.num_running or scheduler.num_waiting:
        while todo and todo[0]["arrive"] <= step:
            due = todo.pop(0)
            output = due["output"]
            request = Request(
                due["rid"], due["arrive"], due["prompt"], output, output, due["priority"]
            )
            assert scheduler.reject_reason(request) is None
            scheduler.add(request)
        step += 1
        if not scheduler.num_running and not scheduler.num_waiting:
            yield {}
            continue
        plan = scheduler.schedule(step)
        row = {
            "sched": [[work.rid, work.num_tokens] for work in plan.work],
            "running": list(scheduler.running),
            "swapped": list(scheduler.swapped),
            "free": [scheduler.num_free_blocks],
            "preempted": sorted(plan.preempted),
        }
        scheduler.update(plan, {})
        row["free"].append(scheduler.num_free_blocks)
        yield row


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])
def test_every_step_is_that_of_the_real_scheduler(trace):
    assert list(rows_of(trace)) == trace["rows"]


def test_the_traces_cover_what_differs_between_engines():
    rows = [row for trace in TRACES for row in trace["rows"] if row]
    assert len(rows) > 400
    assert sum(len(row["preempted"]) for row in rows) > 100
    assert sum(bool(row["swapped"]) for row in rows) > 50
