"""Skipping steps changes no number where clients wait for replies, behind any front end."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import ANY_GPU, MS, engine, request, serve
from test_skipping import (
    EXAMPLES,
    TIMERS,
    GrowingTimer,
    check_fast_lane,
    contents,
    engines,
)

from servesim.content import Inherited
from servesim.engine.front_end import NO_FRONT_END, FrontEnd
from servesim.policies.admission.queue_limit import QueueLimit
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.hf.profile import HFContinuousBatching
from servesim.scheduler.orca import Orca
from servesim.scheduler.sarathi import Sarathi
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.static import Static
from servesim.scheduler.trtllm.profile import TensorRTLLM
from servesim.scheduler.vllm.v0 import VllmV0
from servesim.scheduler.vllm.v1 import VllmV1
from servesim.workload.release import Turns, Users

FRONT_ENDS = (
    NO_FRONT_END,
    NO_FRONT_END,
    FrontEnd(queue_s=0.01),
    FrontEnd(queue_s=0.0021, queue_s_per_prompt_token=0.0003, output_s=0.004),
    FrontEnd(queue_s_per_prompt_token=0.001, output_s=0.02),
)
DOORS = (None, None, None, QueueLimit(1), QueueLimit(3))
PAUSES = (0, 0, MS, 7 * MS + 1, 10 * MS, 200 * MS)
OTHERS = {
    "vllm_v0": VllmV0(64, 4, True),
    "sarathi": Sarathi(16, 4),
    "orca": Orca(max_num_seqs=4),
    "static": Static(max_num_seqs=3),
    "hf": HFContinuousBatching(page_size=4, max_batch_tokens=48),
    "sglang": SGLang(chunked_prefill_size=32, max_running_requests=4),
    "sglang_overlap": SGLang(disable_overlap_schedule=False, max_running_requests=4),
    "trtllm": TensorRTLLM(4, 44, tokens_per_block=4),
    "trtllm_chunked": TensorRTLLM(4, 16, enable_chunked_prefill=True, tokens_per_block=4),
    "trtllm_overlap": TensorRTLLM(4, 44, tokens_per_block=4, disable_overlap_scheduler=False),
    "vllm_v1_async": VllmV1(max_num_batched_tokens=64, max_num_seqs=4, async_scheduling=True),
}


@st.composite
def closed_loops(draw):
    """(requests, release) of users who take the next request of the load when they are free."""
    requests, arrival = [], 0
    paced = draw(st.booleans())
    for rid in range(draw(st.integers(1, 14))):
        arrival += draw(st.sampled_from([0, 7 * MS, 40 * MS])) if paced else 0
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 45))
        cap = draw(st.sampled_from([output, output + 5, max(1, output - 3)]))
        content = draw(contents(prompt, output))
        requests.append(request(rid, arrival, prompt, output, max_tokens=cap, content=content))
    return requests, Users(draw(st.integers(1, 5)), draw(st.sampled_from(PAUSES)))


@st.composite
def sessions(draw):
    """(requests, release) of sessions whose prompts repeat what came before."""
    requests, gaps, start = [], [], 0
    for _ in range(draw(st.integers(1, 5))):
        start += draw(st.sampled_from([0, 0, 10 * MS, 33 * MS]))
        before, content = 0, None
        count = draw(st.integers(1, 4))
        sizes = [(draw(st.integers(1, 40)), draw(st.integers(1, 45))) for _ in range(count)]
        shared = []
        for prompt, output in sizes:
            shared.append(draw(st.integers(0, min(before, prompt))))
            before = prompt + output
        for turn, (prompt, output) in enumerate(sizes):
            rid = len(requests)
            passed_on = shared[turn + 1] if turn + 1 < count else 0
            content = Inherited.of(content, rid, shared[turn], passed_on)
            requests.append(request(rid, start, prompt, output, content=content))
            gaps.append(draw(st.sampled_from(PAUSES)) if turn else None)
    return requests, Turns(tuple(gaps), draw(st.sampled_from([None, 1, 2])))


loads = st.one_of(closed_loops(), sessions())
rare = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def in_both_ways(load, start, timer, **options):
    """The run stepped through and the run with skips, which must be equal."""
    requests, release = load
    stepped, skipped = (
        serve(requests, start(stepwise), timer, keep_steps=True, release=release, **options)
        for stepwise in (True, False)
    )
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped.totals == stepped.totals
    assert skipped == stepped
    check_fast_lane(skipped, serve(requests, start(False), timer, release=release, **options))
    return skipped


def check(load, record, front_end, cut):
    """Nobody is lost or early, and everyone waits for those who must end before."""
    requests, release = load
    assert [r.rid for r in record.requests] == [r.rid for r in requests]
    for given_, done in zip(requests, record.requests, strict=True):
        assert done.arrival_ps >= given_.arrival_ps
        if done.queued_ps is not None:
            assert done.queued_ps == done.arrival_ps + front_end.queue_ps(done.prompt_tokens)
    if not cut:
        assert {r.status for r in record.requests} <= {"finished", "rejected"}
    if isinstance(release, Users) and not cut:
        sent = [r.arrival_ps for r in record.requests]
        assert sent == sorted(sent)
        out = [
            sum(o.arrival_ps <= at < (o.last_token_ps or 0) for o in record.requests) for at in sent
        ]
        assert max(out) <= release.concurrency
    if isinstance(release, Turns) and not cut:
        for turn, gap in zip(record.requests, release.gaps_ps, strict=True):
            before = record.requests[turn.rid - 1]
            if gap is not None and before.status == "finished":
                assert turn.arrival_ps == before.last_token_ps + gap


@rare
@given(
    loads,
    engines(),
    st.booleans(),
    st.sampled_from(TIMERS),
    st.sampled_from(FRONT_ENDS),
    st.sampled_from([None, None, 60 * MS, 200 * MS]),
    st.sampled_from(DOORS),
)
def test_skipping_equals_stepping_in_vllm(load, made, ahead, timer, front_end, until, door):
    made = dict(made)
    if made["order"] == Priority():  # equals that arrive together may preempt each other for ever
        made["order"] = Fcfs()

    def start(stepwise):
        return engine(async_scheduling=ahead, stepwise=stepwise, **made)

    record = in_both_ways(load, start, timer, front_end=front_end, until_ps=until, admission=door)
    check(load, record, front_end, until is not None)


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=EXAMPLES // 6, deadline=None, suppress_health_check=list(HealthCheck))
@given(loads, st.integers(25, 60), st.sampled_from(FRONT_ENDS), st.sampled_from([None, 90 * MS]))
def test_skipping_equals_stepping_in_other_engines(name, load, blocks, front_end, until):
    setup = EngineSetup(ANY_GPU, CacheSize(blocks, 4, True, 1), 96, Fcfs())

    def start(stepwise):
        return OTHERS[name].start(setup, stepwise)

    record = in_both_ways(load, start, GrowingTimer(), front_end=front_end, until_ps=until)
    assert len(record.requests) == len(load[0])


def test_long_replies_of_a_closed_loop_are_runs():
    load = [request(i, 0, 4, 400) for i in range(6)], Users(2, 5 * MS)
    record = in_both_ways(load, lambda stepwise: engine(stepwise=stepwise), GrowingTimer())
    assert record.totals.skipped_steps > 1000
