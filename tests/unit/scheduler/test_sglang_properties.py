"""What must hold on every load: nothing is lost, everyone ends, skipping changes no number."""

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, request, serve
from sglang_stepping import check_slots, contents, finished_all, sglang

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.scheduler.sglang.queue import POLICIES

# a full proof takes more: SERVESIM_EXAMPLES=2000 pytest tests/unit/scheduler/test_sglang_*.py
EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "60"))
ORDERS = (Priority(), ShortestPrompt(), ShortestPrompt(patience_s=0.05))
MAX_LEN = 64


@dataclass(frozen=True)
class MostComputed:
    """A victim policy other than the engine's rule."""

    def key(self, running):
        return (running.computed_tokens,)


@st.composite
def loads(draw):
    requests, arrival = [], 0
    for rid in range(draw(st.integers(1, 14))):
        arrival += draw(st.sampled_from([0, 0, 7 * MS + 1, 10 * MS, 33 * MS, 400 * MS]))
        prompt, output = draw(st.integers(1, 30)), draw(st.integers(1, 26))
        requests.append(
            request(
                rid,
                arrival,
                prompt,
                output,
                max_tokens=draw(st.sampled_from([output, output + 6, max(1, output - 3)])),
                priority=draw(st.integers(0, 2)),
                content=contents(draw, st, prompt, output),
            )
        )
    return requests


@st.composite
def engines(draw):
    page_size = draw(st.sampled_from([1, 1, 2, 4]))
    order = draw(st.sampled_from((Fcfs(), Fcfs(), *ORDERS)))
    own = isinstance(order, Fcfs)
    policy = draw(st.sampled_from(POLICIES)) if own else "fcfs"
    return {
        "tokens": draw(st.integers(76, 160)),
        "max_len": MAX_LEN,
        "caching": draw(st.sampled_from([True, True, False])),
        "order": order,
        "page_size": page_size,
        "chunked_prefill_size": draw(st.sampled_from([8, 20, 64, -1])),
        "max_prefill_tokens": draw(st.sampled_from([16, 40, 16384])),
        "max_running_requests": draw(st.sampled_from([None, 2, 5])),
        "schedule_policy": policy,
        "schedule_conservativeness": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "enable_mixed_chunk": draw(st.booleans()),
        "disable_overlap_schedule": draw(st.sampled_from([True, True, False])),
        "victim": draw(st.sampled_from([None, None, MostComputed()])),
        "enable_priority_scheduling": own and policy in ("fcfs", "lof") and draw(st.booleans()),
        "radix_eviction_policy": draw(st.sampled_from(["lru", "lru", "lfu", "fifo", "filo"])),
        "clip_max_new_tokens": draw(st.sampled_from([2, 4096])),
    }


short = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@short
@given(loads(), engines(), st.sampled_from([None, 60 * MS, 200 * MS]))
def test_skipping_equals_stepping_bit_for_bit(requests, engine, until):
    timer = LinearTimer(per_token=MS // 3)
    stepped, skipped = (
        serve(requests, sglang(stepwise=s, **engine), timer, keep_steps=True, until_ps=until)
        for s in (True, False)
    )
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped == stepped
    if until is None:
        assert finished_all(requests, skipped.requests)


@short
@given(loads(), engines())
def test_no_slot_is_lost_and_everyone_ends(requests, settings_):
    engine = sglang(stepwise=True, **settings_)
    todo = [r for r in requests if engine.reject_reason(r) is None]
    left = {r.rid: min(r.output_tokens, r.max_tokens) for r in todo}
    count, in_flight = 0, []
    while todo or engine.num_running or engine.num_waiting or in_flight:
        while todo and todo[0].arrival_ps <= count * 9 * MS:
            engine.add(todo.pop(0))
        check_slots(engine)
        plan = engine.schedule(count)
        check_slots(engine)
        assert engine.num_running <= engine._limits.max_running_requests
        rids = [work.rid for work in plan.work]
        assert len(set(rids)) == len(rids)
        deep = len(in_flight) + 1 < engine.pipeline_depth and plan.work
        in_flight += [plan] if plan.work else []
        if in_flight and not deep:
            for emission in engine.update(in_flight.pop(0), {}).emitted:
                left[emission.rid] -= 1
        count += 1
        assert count < 4000, "the engine makes no progress"
    check_slots(engine)
    assert not any(left.values())
    assert engine.kv_blocks_used == 0
