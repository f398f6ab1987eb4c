"""Engines that reserve slots, on random loads: skipping changes nothing, no slot is lost."""

import os
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, request, serve
from slotted import setup_of

from servesim.cost.durations import Progression
from servesim.policies.admission.kv_headroom import KVHeadroom
from servesim.policies.admission.queue_limit import QueueLimit
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.records import StepTime
from servesim.scheduler.orca import Orca
from servesim.scheduler.reserving import RESERVATIONS
from servesim.scheduler.static import Static

EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "100"))
MAX_LEN = 60
ORDERS = (Fcfs(), Priority(), ShortestPrompt(), ShortestPrompt(patience_s=0.05))


@dataclass(frozen=True)
class GrowingTimer:
    """Base + slope · tokens + slope · context, in closed form."""

    def step_time(self, plan):
        context = plan.decodes.context
        context += sum(w.num_computed + w.num_tokens for w in plan.work)
        return StepTime(5 * MS + plan.num_tokens * (MS // 7) + context * (MS // 900))

    def decode_run(self, decodes, steps):
        first = 5 * MS + decodes.seqs * (MS // 7) + decodes.context * (MS // 900)
        return Progression(first, decodes.seqs * (MS // 900), steps)


@st.composite
def loads(draw):
    requests, arrival = [], 0
    for rid in range(draw(st.integers(1, 14))):
        # gaps of whole steps too, so that arrivals fall on step boundaries
        arrival += draw(st.sampled_from([0, 0, MS, 7 * MS + 1, 10 * MS, 33 * MS, 400 * MS]))
        prompt, output = draw(st.integers(1, 25)), draw(st.integers(1, 30))
        cap = draw(st.sampled_from([output, output + 5, max(1, output - 3)]))
        priority = draw(st.integers(0, 2))
        requests.append(request(rid, arrival, prompt, output, max_tokens=cap, priority=priority))
    return requests


@st.composite
def profiles(draw):
    seats, reservation = draw(st.sampled_from([1, 2, 4, 9])), draw(st.sampled_from(RESERVATIONS))
    if draw(st.booleans()):
        return Static(seats, reservation, draw(st.booleans()))
    tokens = draw(st.sampled_from([None, None, 26, 40]))
    return Orca(seats, tokens, reservation, draw(st.booleans()))


many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(
    loads(),
    profiles(),
    st.integers(MAX_LEN, 4 * MAX_LEN),
    st.sampled_from(ORDERS),
    st.sampled_from([GrowingTimer(), LinearTimer(per_token=MS // 3)]),
    st.sampled_from([None, 60 * MS, 200 * MS]),
    st.sampled_from([None, None, QueueLimit(2), KVHeadroom(0.5)]),
)
def test_skipping_equals_stepping_bit_for_bit(
    requests, profile, slots, order, timer, until, admission
):
    runs = []
    for stepwise in (True, False):
        scheduler = profile.start(setup_of(slots, MAX_LEN, order), stepwise)
        options = {"keep_steps": True, "until_ps": until, "admission": admission}
        runs.append(serve(requests, scheduler, timer, **options))
    stepped, skipped = runs
    assert stepped.totals.skipped_steps == 0
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped == stepped


@many
@given(loads(), profiles(), st.integers(MAX_LEN, 2 * MAX_LEN))
def test_everyone_is_served_in_order_and_no_slot_is_lost(requests, profile, slots):
    scheduler = profile.start(setup_of(slots, MAX_LEN))
    record = serve(requests, scheduler, GrowingTimer(), keep_steps=True)
    assert all(r.status == "finished" for r in record.requests)
    assert all(r.output_tokens == r.requested_tokens for r in record.requests)
    assert all(r.preemptions == r.recomputed_tokens == 0 for r in record.requests)
    starts = [r.scheduled_ps for r in record.requests]
    assert starts == sorted(starts)
    for step in record.steps:
        assert 0 <= step.kv_slots_unused < step.kv_blocks_used <= slots
        assert step.num_seqs <= profile.max_num_seqs
    assert record.totals.tokens == sum(
        r.prompt_tokens + r.output_tokens - 1 for r in record.requests
    )
    assert (scheduler.kv_blocks_used, scheduler.num_running, scheduler.num_waiting) == (0, 0, 0)


@many
@given(loads(), st.sampled_from(RESERVATIONS))
def test_static_batches_do_not_overlap(requests, reservation):
    scheduler = Static(4, reservation).start(setup_of(2 * MAX_LEN, MAX_LEN))
    batches: dict[int, list[int]] = {}
    for r in serve(requests, scheduler, GrowingTimer()).requests:
        batches.setdefault(r.scheduled_ps, []).append(r.last_token_ps)
    assert all(len(ends) <= 4 for ends in batches.values())
    for (_, ends), (start, _) in pairwise(sorted(batches.items())):
        assert start >= max(ends)
