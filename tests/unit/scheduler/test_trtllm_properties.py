"""TensorRT-LLM on random loads: skipping changes nothing, nobody is preempted, no block is lost."""

from hypothesis import given
from hypothesis import strategies as st
from serving import ANY_GPU, MS, LinearTimer, request, serve
from test_reserving_properties import MAX_LEN, ORDERS, GrowingTimer, loads, many

from servesim.content import SharedPrefix
from servesim.policies.admission.queue_limit import QueueLimit
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.trtllm.profile import TensorRTLLM


@st.composite
def profiles(draw):
    chunked = draw(st.booleans())
    return TensorRTLLM(
        max_batch_size=draw(st.sampled_from([1, 2, 4, 9])),
        max_num_tokens=draw(st.sampled_from([4, 9, 16])) if chunked else 25,
        enable_chunked_prefill=chunked,
        tokens_per_block=draw(st.sampled_from([1, 2, 4])),
        disable_overlap_scheduler=draw(st.booleans()),
    )


@st.composite
def sharing(draw):
    """A load in which some prompts begin alike."""
    made = []
    for r in draw(loads()):
        shared = draw(st.integers(0, r.prompt_tokens - 1))
        content = {"content": SharedPrefix(draw(st.integers(0, 1)), shared)} if shared else {}
        made.append(
            request(
                r.rid,
                r.arrival_ps,
                r.prompt_tokens,
                r.output_tokens,
                max_tokens=r.max_tokens,
                priority=r.priority,
                **content,
            )
        )
    return made


def setup(slots, caching, order=ORDERS[0]):
    return EngineSetup(ANY_GPU, CacheSize(slots + 1, 1, caching), MAX_LEN, order)


@many
@given(
    sharing(),
    profiles(),
    st.integers(MAX_LEN, 4 * MAX_LEN),
    st.booleans(),
    st.sampled_from(ORDERS),
    st.sampled_from([GrowingTimer(), LinearTimer(per_token=MS // 3)]),
    st.sampled_from([None, 60 * MS, 200 * MS]),
    st.sampled_from([None, None, QueueLimit(2)]),
)
def test_skipping_equals_stepping_bit_for_bit(
    requests, profile, slots, caching, order, timer, until, door
):
    runs = []
    for stepwise in (True, False):
        scheduler = profile.start(setup(slots, caching, order), stepwise)
        options = {"keep_steps": True, "until_ps": until, "admission": door}
        runs.append(serve(requests, scheduler, timer, **options))
    stepped, skipped = runs
    assert stepped.totals.skipped_steps == 0
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped == stepped


@many
@given(sharing(), profiles(), st.integers(MAX_LEN, 2 * MAX_LEN), st.booleans())
def test_nobody_is_preempted_and_no_block_is_lost(requests, profile, slots, caching):
    scheduler = profile.start(setup(slots, caching))
    record = serve(requests, scheduler, GrowingTimer(), keep_steps=True)
    assert all(r.status == "finished" for r in record.requests)
    assert all(r.output_tokens == r.requested_tokens for r in record.requests)
    assert all(r.preemptions == r.recomputed_tokens == 0 for r in record.requests)
    starts = [r.scheduled_ps for r in record.requests]
    assert starts == sorted(starts)
    for step in record.steps:
        assert 0 <= step.kv_blocks_used <= scheduler.kv_blocks
        assert step.num_seqs <= profile.max_batch_size
        assert step.prefill_tokens + step.decode_tokens <= profile.max_num_tokens
    assert (scheduler.kv_blocks_used, scheduler.num_owed_blocks) == (0, 0)
    assert (scheduler.num_running, scheduler.num_waiting) == (0, 0)


@many
@given(sharing(), profiles(), st.integers(MAX_LEN, 2 * MAX_LEN), st.booleans())
def test_what_is_owed_is_always_there(requests, profile, slots, caching):
    scheduler = profile.start(setup(slots, caching), stepwise=True)
    plan, served = scheduler.schedule, []

    def watched(now_ps):
        made = plan(now_ps)
        served.append((scheduler.num_owed_blocks, scheduler.num_free_blocks))
        return made

    scheduler.schedule = watched
    serve(requests, scheduler, GrowingTimer())
    assert served
    assert all(0 <= owed <= free for owed, free in served)
