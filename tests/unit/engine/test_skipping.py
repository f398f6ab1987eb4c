"""Skipping steps in which nothing is decided changes no number: bit for bit, on random loads."""

import os
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, engine, request, serve

from servesim.content import SharedPrefix, Tokens, TraceBlocks, Unique
from servesim.cost.durations import Progression
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.records import StepTime
from servesim.scheduler.vllm.releases import RELEASES

# a full proof takes more: SERVESIM_EXAMPLES=20000 pytest tests/unit/engine/test_skipping.py
EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "300"))
ORDERS = (Fcfs(), Priority(), ShortestPrompt(), ShortestPrompt(patience_s=0.05))


@dataclass(frozen=True)
class GrowingTimer:
    """Base + slope · context in closed form, as fitted and roofline costs have it."""

    base: int = 5 * MS
    per_token: int = MS // 7
    per_context: int = MS // 900

    def step_time(self, plan):
        context = plan.decodes.context
        context += sum(w.num_computed + w.num_tokens for w in plan.work)
        return StepTime(self.base + self.per_token * plan.num_tokens + self.per_context * context)

    def decode_run(self, decodes, steps):
        first = self.base + self.per_token * decodes.seqs + self.per_context * decodes.context
        return Progression(first, self.per_context * decodes.seqs, steps)


@dataclass(frozen=True)
class TableTimer(LinearTimer):
    """Stairs by tokens and by context, and an axis with a range: no closed form."""

    def step_time(self, plan):
        context = plan.decodes.context
        context += sum(w.num_computed + w.num_tokens for w in plan.work)
        stairs = 3 * MS + -(-plan.num_tokens // 8) * MS + (context // 16) ** 2 * (MS // 1000)
        return StepTime(stairs, ("context",) if context > 150 else ())


TIMERS = (GrowingTimer(), LinearTimer(per_token=MS // 3), TableTimer())


@st.composite
def contents(draw, prompt, output):
    kind = draw(st.sampled_from(("unique", "prefix", "trace", "tokens")))
    if kind == "prefix" and prompt > 4:
        return SharedPrefix(draw(st.integers(0, 2)), draw(st.integers(1, prompt - 1)))
    if kind == "trace":
        # ids that run into the reply, so that a reply's blocks may be another one's prompt
        length = draw(st.integers(0, (prompt + output) // 4))
        branch = draw(st.integers(0, 2))
        return TraceBlocks(tuple(i * 3 + (branch if i > 2 else 0) for i in range(length)), 4)
    if kind == "tokens":
        start = draw(st.integers(0, 1))
        return Tokens(tuple(range(start, start + prompt + output)))
    return Unique()


@st.composite
def loads(draw):
    requests, arrival = [], 0
    for rid in range(draw(st.integers(1, 14))):
        # gaps of whole steps too, so that arrivals fall on step boundaries
        arrival += draw(st.sampled_from([0, 0, MS, 7 * MS + 1, 10 * MS, 33 * MS, 400 * MS]))
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 45))
        requests.append(
            request(
                rid,
                arrival,
                prompt,
                output,
                max_tokens=draw(st.sampled_from([output, output + 5, max(1, output - 3)])),
                priority=draw(st.integers(0, 2)),
                content=draw(contents(prompt, output)),
            )
        )
    return requests


@st.composite
def engines(draw):
    chunked = draw(st.booleans())
    max_seqs = draw(st.sampled_from([1, 2, 4, 9]))
    block_size = draw(st.sampled_from([1, 2, 4, 4]))
    release = draw(st.sampled_from(list(RELEASES)))
    has_watermark = RELEASES[release].admission_watermark
    return {
        "release": release,
        # often so few that the head of the queue waits for memory while others decode
        "blocks": 2
        + 96 // block_size
        + draw(st.sampled_from([0, 0, 1, 3, draw(st.integers(0, 36))])),
        "block_size": block_size,
        "max_tokens": draw(st.sampled_from([9, 16, 40])) if chunked else 96,
        "max_seqs": max_seqs,
        "max_model_len": 96,
        "caching": draw(st.booleans()),
        "order": draw(st.sampled_from(ORDERS)),
        "enable_chunked_prefill": chunked,
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 6])),
        "watermark": draw(st.sampled_from([0.0, 0.1])) if has_watermark else 0.0,
    }


def told_apart(requests, settings_):
    """Without the full-sequence gate, two equals that arrive together may preempt each other for
    ever under priorities, as in vLLM."""
    gated = RELEASES[settings_["release"]].full_sequence_gate
    if settings_["order"] != Priority() or (gated and settings_["scheduler_reserve_full_isl"]):
        return requests
    return [replace(r, arrival_ps=r.arrival_ps + r.rid) for r in requests]


def check_fast_lane(asked, driven):
    """Where no steps are kept the scheduler drives itself, to the same decisions."""
    assert driven.requests == asked.requests
    assert driven.itl_ps == asked.itl_ps
    assert driven.totals == asked.totals
    assert driven == replace(asked, steps=())
    assert driven.totals.decisions == asked.totals.decisions
    assert driven.totals.skipped_steps == asked.totals.skipped_steps


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(loads(), engines(), st.sampled_from(TIMERS), st.sampled_from([None, 60 * MS, 200 * MS]))
def test_skipping_equals_stepping_bit_for_bit(requests, settings_, timer, until):
    settings_ = dict(settings_)
    requests = told_apart(requests, settings_)
    runs = []
    for stepwise in (True, False):
        scheduler = engine(stepwise=stepwise, **settings_)
        runs.append(serve(requests, scheduler, timer, keep_steps=True, until_ps=until))
    stepped, skipped = runs
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped.totals == stepped.totals
    assert skipped == stepped
    check_fast_lane(skipped, serve(requests, engine(**settings_), timer, until_ps=until))


def test_a_long_reply_alone_is_one_run():
    record = serve([request(0, 0, 4, 3000)], engine(max_model_len=4000), GrowingTimer())
    assert record.totals.steps == 3000
    assert record.totals.skipped_steps == 2998  # the first is the prefill, the second is the run


def test_under_memory_pressure_there_are_preemptions_in_both():
    requests = [request(i, i * MS, 30, 40) for i in range(12)]
    runs = [
        serve(requests, engine(blocks=40, max_model_len=96, stepwise=s), GrowingTimer())
        for s in (True, False)
    ]
    assert runs[0] == runs[1]
    assert sum(r.preemptions for r in runs[1].requests) > 5
    assert runs[1].totals.skipped_steps > 0


def test_records_do_not_tell_whether_steps_were_skipped():
    totals = serve([request(0, 0, 4, 30)]).totals
    assert totals == replace(totals, skipped_steps=0)


def in_both_ways(requests, **settings_):
    """The run stepped through and the run with skips, which must be equal."""
    stepped, skipped = (
        serve(requests, engine(stepwise=stepwise, **settings_), GrowingTimer(), keep_steps=True)
        for stepwise in (True, False)
    )
    assert skipped == stepped
    return skipped


def test_a_head_that_is_looked_up_at_every_step_is_counted_through_a_run():
    requests = [request(0, 0, 20, 40), request(1, 5 * MS, 70, 5)]
    record = in_both_ways(requests, release="0.20", blocks=22, max_model_len=96)
    # 21 blocks, of which request 0 holds 5 to 15 in its steps 0 … 39; request 1 needs 18, and is
    # looked up in the steps 1 … 39 and in the one that lets it in
    assert record.prefix_stats.queries == 20 + 40 * 70
    assert record.totals.skipped_steps > 30
    newest = in_both_ways(requests, release="0.33", blocks=22, max_model_len=96)
    assert newest.prefix_stats.queries == 20 + 70


def test_a_head_whose_hits_get_lost_in_a_run_is_looked_at_in_each_step():
    shared = Tokens(tuple(range(80)))
    requests = [
        request(0, 0, 40, 1, content=shared),
        request(1, 15 * MS, 20, 40),
        request(2, 20 * MS, 76, 5, content=shared),
    ]
    record = in_both_ways(requests, release="0.20", blocks=22, max_model_len=96)
    assert record.prefix_stats.hits > 0


def test_requests_that_are_passed_over_swap_places_at_every_step():
    # two decodes leave 94 tokens, so both long prompts are passed over until one of the two ends
    requests = [request(0, 0, 4, 40), request(1, 0, 4, 29)]
    requests += [request(2 + i, 5 * MS, 95, 1) for i in range(2)]
    record = in_both_ways(
        requests,
        release="0.11",
        blocks=60,
        max_tokens=96,
        max_model_len=96,
        enable_chunked_prefill=False,
    )
    assert record.requests[2].scheduled_ps != record.requests[3].scheduled_ps


def test_a_block_that_fills_lets_the_head_of_the_queue_in_within_the_same_step():
    # request 3 writes the tokens that request 5 asks for, while 5 waits for memory
    requests = [
        request(0, 0, 16, 7),
        request(1, 0, 37, 6),
        request(2, 0, 1, 6),
        request(3, 10 * MS, 2, 5, content=Tokens(tuple(range(7)))),
        request(4, 17 * MS + 1, 1, 1),
        request(5, 24 * MS + 2, 17, 1, content=Tokens(tuple(range(18)))),
    ]
    runs = [
        serve(
            requests,
            engine(
                blocks=50,
                block_size=2,
                max_tokens=40,
                max_seqs=9,
                max_model_len=96,
                scheduler_reserve_full_isl=False,
                watermark=0.1,
                stepwise=stepwise,
            ),
            TableTimer(),
            keep_steps=True,
        )
        for stepwise in (True, False)
    ]
    assert runs[0] == runs[1]
    assert runs[1].requests[5].cached_tokens == 6


def test_the_look_ups_of_the_step_in_flight_count_where_the_run_is_cut():
    # releases that count every look-up: request 1 waits for memory behind 0 and 2, and is looked
    # up once more by the step that the cut leaves unfinished
    small = [request(i, 0 if i < 5 else MS, 1, 1) for i in range(3, 7)]
    requests = [request(0, 0, 33, 9), request(1, 0, 38, 1), request(2, 0, 24, 10), *small]
    settings_ = {"block_size": 1, "max_tokens": 40, "max_seqs": 4, "max_model_len": 96}
    runs = [
        serve(
            requests,
            engine(release="0.11", blocks=98, order=ShortestPrompt(), stepwise=s, **settings_),
            GrowingTimer(),
            until_ps=60 * MS,
        )
        for s in (True, False)
    ]
    assert runs[0] == runs[1]
    assert runs[1].totals.skipped_steps > 0
    assert runs[1].prefix_stats.queries > sum(r.prompt_tokens for r in requests)
