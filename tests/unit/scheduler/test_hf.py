"""transformers continuous batching: stories worked out by hand, then properties."""

import os
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import MS, LinearTimer, request, serve

from servesim.content import SharedPrefix, Tokens, Unique
from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.records import PrefixStats
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.hf.profile import HFContinuousBatching

EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "300"))
ANY_GPU = GPU("any", 80.0, 1.0, {}, 1.0)


def engine(pages=8, caching=True, order=None, victim=None, max_len=200, stepwise=True, **limits):
    limits = {"page_size": 4, "max_batch_tokens": 64, "safety_margin": 0.0, **limits}
    cache = CacheSize(pages * limits["page_size"] + 1, 1, caching)
    setup = EngineSetup(ANY_GPU, cache, max_len, order or Fcfs(), victim)
    return HFContinuousBatching(**limits).start(setup, stepwise)


class Story:
    """An engine driven by hand; requests have one-letter names."""

    def __init__(self, **settings):
        self.scheduler = engine(**settings)
        self.names = []
        self.plan = self.outcome = None
        self.free = ""

    def add(self, name, prompt, output, content=Unique()):  # noqa: B008  frozen
        added = request(len(self.names), 0, prompt, output, content=content)
        assert self.scheduler.reject_reason(added) is None
        self.names.append(name)
        self.scheduler.add(added)

    def step(self):
        """One step: its batch, e.g. `a4 b1`."""
        scheduler = self.scheduler
        self.plan = scheduler.schedule(0)
        free = scheduler.num_free_pages
        self.outcome = scheduler.update(self.plan, {})
        self.free = f"{free}→{scheduler.num_free_pages}+{scheduler.num_cached_pages}"
        return " ".join(f"{self.names[w.rid]}{w.num_tokens}" for w in self.plan.work)

    def steps(self, count):
        return [self.step() for _ in range(count)]

    @property
    def finished(self):
        return self.called(self.outcome.finished)

    @property
    def preempted(self):
        return self.called(self.plan.preempted)

    @property
    def active(self):
        return self.called(self.scheduler.running)

    @property
    def waiting(self):
        return self.called(self.scheduler.waiting)

    @property
    def cached(self):
        return {self.names[a.rid]: a.cached_tokens for a in self.plan.admitted}

    def called(self, rids):
        return "".join(self.names[rid] for rid in rids)


def test_fifo_takes_decodes_before_the_rest_of_a_prompt():
    story = Story(max_batch_tokens=6)
    story.add("a", 4, 3)
    story.add("b", 8, 2)
    assert story.steps(4) == ["a4 b2", "a1 b5", "a1 b1", "b1"]


def test_prefill_first_takes_the_rest_of_a_prompt_before_decodes():
    story = Story(max_batch_tokens=6, scheduler_type="prefill_first")
    story.add("a", 4, 3)
    story.add("b", 8, 2)
    assert story.steps(4) == ["a4 b2", "b6", "a1 b1", "a1"]


def test_a_request_that_does_not_fit_is_skipped_and_blocks_nobody():
    """Trap 8: vLLM and SGLang stop at the head of the queue."""
    story = Story(pages=4)
    story.add("a", 8, 5)  # 2 pages, 3 from its second step on
    story.add("b", 12, 1)  # 3 pages
    story.add("c", 4, 2)
    assert story.step() == "a8 c4"
    assert story.waiting == "b"
    assert story.free == "1→1+0"


def test_all_cached_pages_are_evicted_at_once():
    """Trap 38: no LRU; one request that lacks a page costs everyone their prefix."""
    story = Story(pages=5)
    story.add("a", 8, 2, SharedPrefix(0, 8))
    assert story.steps(2) == ["a8", "a1"]
    assert story.free == "2→3+2"  # the two pages of its prompt stay
    story.add("b", 13, 1)  # 4 pages, one more than are free
    assert story.step() == "b13"
    assert story.free == "1→5+0"
    story.add("c", 9, 1, SharedPrefix(0, 8))
    assert story.step() == "c9"
    assert story.cached == {"c": 0}


def test_cached_pages_are_evicted_below_the_margin_too():
    story = Story(pages=10, safety_margin=0.5)
    story.add("a", 8, 4, SharedPrefix(0, 8))
    assert story.steps(4) == ["a8", "a1", "a1", "a1"]
    assert story.free == "7→8+2"
    story.add("b", 16, 8)
    assert story.step() == "b16"
    assert story.free == "4→4+2"
    story.step()  # 4 of 10 are free at its start
    assert story.free == "5→5+0"


def test_pages_have_256_tokens_and_their_last_one_is_mostly_empty():
    """Trap 38: internal fragmentation."""
    setup = EngineSetup(ANY_GPU, CacheSize(1 + 5 * 16, 16, True), 4096, Fcfs())
    scheduler = HFContinuousBatching(safety_margin=0.0).start(setup)
    assert scheduler.block_size == 256
    assert scheduler.kv_blocks == 5  # 80 blocks of 16 tokens
    scheduler.add(request(0, 0, 257, 3))
    scheduler.add(request(1, 0, 1, 3))
    scheduler.schedule(0)
    assert scheduler.kv_blocks_used == 3
    assert scheduler.kv_slots_unused == 2 * 255


def test_a_cache_that_is_no_multiple_of_the_page_loses_the_rest():
    setup = EngineSetup(ANY_GPU, CacheSize(1 + 33, 16, True), 4096, Fcfs())
    assert HFContinuousBatching().start(setup).kv_blocks == 2  # of 528 tokens


def test_outside_the_margin_the_first_candidate_is_tried_all_the_same():
    story = Story(pages=4, safety_margin=0.9, max_batch_tokens=4)
    story.add("a", 12, 2)
    story.add("b", 1, 1)
    assert story.step() == "a4"
    assert story.step() == "a4"  # 3 of 4 pages are free: nobody else, though b would fit
    assert story.step() == "a4"


def test_outside_the_margin_only_decodes_follow():
    story = Story(pages=10, safety_margin=0.75)
    story.add("a", 8, 4)
    story.add("b", 4, 4)
    assert story.step() == "a8 b4"
    story.add("c", 1, 1)
    assert story.steps(3) == ["a1 b1", "a1 b1", "a1 b1"]  # 7, then 5 of 10 free
    assert story.finished == "ab"
    assert story.step() == "c1"


def test_the_default_margins():
    for name, margin in (("fifo", 0.15), ("prefill_first", 0.0)):
        profile = HFContinuousBatching(scheduler_type=name)
        assert profile.limits(CacheSize(1001, 16, True)).safety_margin == margin


def test_equal_pages_are_merged_after_the_step_that_filled_them():
    story = Story(pages=8)
    story.add("a", 9, 3, SharedPrefix(0, 8))
    story.add("b", 9, 3, SharedPrefix(0, 8))
    assert story.step() == "a9 b9"  # no sharing within a step
    assert story.free == "2→4+0"  # b has given its own two copies back
    assert story.scheduler.kv_blocks_used == 4
    story.add("c", 9, 3, SharedPrefix(0, 8))
    assert story.step() == "a1 b1 c1"
    assert story.cached == {"c": 8}
    assert story.scheduler.prefix_stats == PrefixStats(queries=27, hits=8)


def test_a_hit_leaves_the_last_token_to_compute():
    story = Story()
    story.add("a", 8, 3, SharedPrefix(0, 8))
    story.step()
    story.add("b", 8, 3, SharedPrefix(0, 8))
    assert story.step() == "a1 b4"
    assert story.cached == {"b": 4}


def test_pages_filled_in_the_step_that_ends_a_request_are_not_kept():
    story = Story()
    story.add("a", 9, 1, SharedPrefix(0, 8))
    story.step()
    assert story.free == "5→8+0"
    story.add("b", 9, 1, SharedPrefix(0, 8))
    assert story.step() == "b9"
    assert story.cached == {"b": 0}


def test_without_sharing_nothing_is_kept():
    story = Story(caching=False)
    story.add("a", 8, 2, SharedPrefix(0, 8))
    story.steps(2)
    assert story.free == "5→8+0"
    assert story.scheduler.prefix_stats == PrefixStats(0, 0)


def crowd(**settings):
    """a and b fill four pages; neither gets the page for its ninth token. c waits."""
    story = Story(pages=4, **settings)
    story.add("a", 4, 6)
    story.add("b", 4, 6)
    assert story.step() == "a4 b4"
    assert story.step() == "a1 b1"
    story.add("c", 2, 1)
    assert story.steps(3) == ["a1 b1"] * 3
    return story


def test_the_last_starved_candidate_is_the_victim_and_goes_to_the_back():
    story = crowd()
    assert story.step() == "a1"
    assert (story.preempted, story.waiting) == ("b", "cb")
    assert story.free == "1→2+2"  # a has ended; its two full pages are cached, b's are not
    assert story.finished == "a"
    assert story.step() == "c2"  # b needs 3 pages for 4 + 5 tokens and is skipped
    assert story.step() == "b9"  # all again, once the cached pages are evicted
    assert dict(story.plan.recomputed) == {1: 8}
    assert story.finished == "b"


def test_nobody_is_let_in_between_a_preemption_and_the_next_end():
    story = Story(pages=8)
    for name in "abcd":
        story.add(name, 4, 8 if name == "a" else 20)
    assert story.steps(5) == ["a4 b4 c4 d4", *["a1 b1 c1 d1"] * 4]
    assert story.step() == "a1 b1"  # the ninth tokens: c and d make room, d goes first
    assert (story.preempted, story.waiting) == ("dc", "cd")
    assert story.free == "2→2+0"
    story.add("e", 1, 1)
    assert story.step() == "a1 b1"  # e would fit
    assert story.step() == "a1 b1"
    assert story.finished == "a"
    assert story.step() == "b1 c9"  # c takes all 3 free pages; d and e get none


def test_a_hit_makes_a_request_active_even_if_it_gets_no_page():
    story = Story(pages=4)
    story.add("a", 4, 5, SharedPrefix(0, 4))
    story.step()
    story.add("b", 16, 1, SharedPrefix(0, 4))
    assert story.step() == "a1"  # b found a page and lacked 3, a took the third last
    assert story.cached == {"b": 4}
    assert story.preempted == "b"  # starved, so it gives its page back in the same step
    assert (story.active, story.waiting) == ("a", "b")
    assert story.steps(3) == ["a1"] * 3
    assert story.finished == "a"
    assert story.step() == "b12"
    assert story.plan.admitted[0].resumed


def test_a_step_reads_no_more_tokens_than_the_cache_holds():
    """Shared pages are read once per request: 17 and 16 tokens of 24."""
    batches = []
    for blocks in (0, 4, 5):
        story = Story(pages=6, max_blocks_per_request=blocks)
        story.add("a", 17, 4, SharedPrefix(0, 16))
        story.step()
        story.add("b", 17, 4, SharedPrefix(0, 16))
        batches.append(story.step())
        assert story.active == "ab"
    assert batches == ["a1", "a1", "a1 b1"]  # decodes of up to 5 pages are read by block table


def test_requests_of_a_step_are_limited():
    story = Story(max_requests_per_batch=2)
    for name in "abc":
        story.add(name, 2, 2)
    assert story.steps(3) == ["a2 b2", "a1 b1", "c2"]


def test_another_order_ranks_those_who_wait_and_nobody_else():
    story = Story(order=ShortestPrompt(), max_batch_tokens=8)
    story.add("a", 6, 3)
    story.step()
    for name, prompt in (("b", 9), ("c", 3), ("d", 2)):
        story.add(name, prompt, 1)
    assert story.steps(2) == ["a1 d2 c3 b2", "a1 b7"]


@dataclass(frozen=True)
class LongestReply:
    def key(self, running):
        return (running.generated_tokens,)


def test_a_victim_policy_chooses_among_the_starved():
    story = Story(pages=4, victim=LongestReply())
    story.add("a", 4, 6)
    story.step()
    story.add("b", 5, 6)
    assert story.steps(4) == ["a1 b5", "a1 b1", "a1 b1", "a1 b1"]
    assert story.step() == "b1"  # both lack a page; a has more reply and came first
    assert story.preempted == "a"


def test_what_could_never_end_is_rejected():
    scheduler = engine(pages=4, max_len=17)
    assert scheduler.reject_reason(request(0, 0, 10, 7)) is None  # 16 tokens of KV
    assert "17 tokens" not in str(scheduler.reject_reason(request(0, 0, 10, 7)))
    assert scheduler.reject_reason(request(0, 0, 10, 8)) == (
        "prompt + max_tokens = 18 > max_model_len 17"
    )
    assert engine(pages=4).reject_reason(request(0, 0, 10, 8)) == (
        "prompt + max_tokens - 1 = 17 > 16 tokens of KV cache"
    )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"page_size": 2}, "page_size=2: must be 4 or more"),
        ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
        ({"max_requests_per_batch": 0}, "max_requests_per_batch=0"),
        ({"max_blocks_per_request": -1}, "max_blocks_per_request=-1"),
        ({"safety_margin": 1.5}, "safety_margin=1.5"),
        ({"cpu_offload_space": 8.0}, "CPU memory are not simulated; nearest: 0"),
    ],
)
def test_settings_out_of_range_are_refused(bad, words):
    with pytest.raises(SettingError, match=words):
        HFContinuousBatching(**bad)


def test_an_unknown_scheduler_is_refused_with_the_nearest():
    with pytest.raises(UnknownChoiceError, match="did you mean 'fifo'"):
        HFContinuousBatching(scheduler_type="fif")


def test_a_cache_of_less_than_a_page_is_refused():
    setup = EngineSetup(ANY_GPU, CacheSize(9, 16, True), 100, Fcfs())
    with pytest.raises(SettingError, match="holds 128 tokens, less than one page; nearest: 128"):
        HFContinuousBatching().start(setup)
    setup = EngineSetup(ANY_GPU, CacheSize(4, 1, True), 100, Fcfs())
    with pytest.raises(SettingError, match=r"holds 3 tokens, .*nearest: a larger cache"):
        HFContinuousBatching().start(setup)


def test_the_description_tells_the_limits_and_the_pages():
    setup = EngineSetup(ANY_GPU, CacheSize(1 + 33, 16, False), 4096, Fcfs())
    line = HFContinuousBatching(max_blocks_per_request=0, max_batch_tokens=64).describe(setup)
    # no more requests than tokens; 528 tokens of KV cache are two pages
    assert "fifo, max_batch_tokens 64, max_requests_per_batch 64, 2 pages × 256 tokens" in line
    assert "max_blocks_per_request 0, safety_margin 0.15, block sharing off" in line
    assert line.endswith(", max_model_len 4096")


@st.composite
def loads(draw):
    requests, arrival = [], 0
    for rid in range(draw(st.integers(1, 14))):
        arrival += draw(st.sampled_from([0, 0, MS, 7 * MS + 1, 10 * MS, 33 * MS, 400 * MS]))
        prompt, output = draw(st.integers(1, 40)), draw(st.integers(1, 45))
        content = draw(
            st.sampled_from(
                [
                    Unique(),
                    SharedPrefix(rid % 2, 9),
                    SharedPrefix(0, 30),
                    Tokens(tuple(range(prompt + output))),  # replies become others' prompts
                ]
            )
        )
        cap = draw(st.sampled_from([output, output + 5, max(1, output - 3)]))
        requests.append(request(rid, arrival, prompt, output, max_tokens=cap, content=content))
    return requests


ENGINES = st.fixed_dictionaries(
    {
        "pages": st.integers(24, 60),
        "caching": st.booleans(),
        "order": st.sampled_from([Fcfs(), ShortestPrompt(), ShortestPrompt(patience_s=0.05)]),
        "victim": st.sampled_from([None, LongestReply()]),
        "max_len": st.sampled_from([60, 96]),
        "scheduler_type": st.sampled_from(["fifo", "prefill_first"]),
        "max_batch_tokens": st.sampled_from([5, 16, 60]),
        "max_requests_per_batch": st.sampled_from([1, 3, 9, 64]),
        "max_blocks_per_request": st.sampled_from([0, 3, 32]),
        "safety_margin": st.sampled_from([None, 0.0, 0.3, 1.0]),
    }
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(loads(), ENGINES, st.sampled_from([None, 60 * MS, 200 * MS]))
def test_skipping_equals_stepping_bit_for_bit(requests, limits, until):
    timer = LinearTimer(per_token=MS // 3)
    stepped, skipped = (
        serve(requests, engine(stepwise=one, **limits), timer, keep_steps=True, until_ps=until)
        for one in (True, False)
    )
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped == stepped


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(loads(), ENGINES)
def test_pages_are_conserved_and_nobody_is_lost(requests, limits):
    scheduler = engine(**limits)
    live = {r.rid: 0 for r in requests if scheduler.reject_reason(r) is None}
    for one in requests:
        if one.rid in live:
            scheduler.add(one)
    while live:
        plan = scheduler.schedule(0)
        assert plan.work
        assert plan.num_tokens <= limits["max_batch_tokens"]
        assert plan.num_seqs <= limits["max_requests_per_batch"]
        assert scheduler.num_running + scheduler.num_waiting == len(live)
        assert scheduler.num_free_pages >= 0
        assert scheduler.kv_slots_unused >= 0
        for emission in scheduler.update(plan, {}).emitted:
            live[emission.rid] += 1
            wanted = min(requests[emission.rid].output_tokens, requests[emission.rid].max_tokens)
            assert live[emission.rid] <= wanted
            if live[emission.rid] == wanted:
                del live[emission.rid]
    assert scheduler.kv_blocks_used == 0
    assert scheduler.num_free_pages + scheduler.num_cached_pages == limits["pages"]


def test_a_long_reply_alone_is_skipped_over():
    scheduler = engine(pages=800, max_len=4000, stepwise=False)
    record = serve([request(0, 0, 4, 3000)], scheduler)
    assert record.totals.steps == 3000
    assert record.totals.skipped_steps > 2900


def test_a_crowd_under_pressure_is_skipped_over_too():
    requests = [request(i, i * MS, 30, 40) for i in range(12)]
    records = [
        serve(requests, engine(pages=40, stepwise=one), keep_steps=True) for one in (True, False)
    ]
    assert records[0] == records[1]
    assert sum(r.preemptions for r in records[1].requests) > 3
    assert records[1].totals.skipped_steps > records[1].totals.steps // 2
