"""TensorRT-LLM by hand: what is reserved, who joins when, how prompts share a step, the overlap."""

from collections import deque

import pytest
from serving import request
from slotted import Driver, setup_of

from servesim.content import SharedPrefix, Unique
from servesim.errors import SettingError
from servesim.policies.order.priority import Priority
from servesim.records import PrefixStats, Request
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.trtllm.profile import TensorRTLLM

SMALL = TensorRTLLM(max_batch_size=3, max_num_tokens=12, tokens_per_block=4)
CHUNKED = TensorRTLLM(3, 12, enable_chunked_prefill=True, tokens_per_block=4)
OVERLAPPED = TensorRTLLM(3, 12, tokens_per_block=4, disable_overlap_scheduler=False)


class Engine(Driver):
    """One row per plan: who computes what; blocks held and owed; who ended with the step due."""

    def __init__(self, profile, **setup):
        super().__init__(profile, **setup)
        self.due = deque()

    def step(self):
        scheduler = self.scheduler
        plan = scheduler.schedule(0)
        batch = " ".join(f"{self.names[w.rid]}{w.num_tokens}" for w in plan.work)
        blocks = f"{scheduler.kv_blocks_used}+{scheduler.num_owed_blocks}"
        if plan.work:
            self.due.append(plan)
        ended = ""
        if self.due and (not plan.work or len(self.due) == scheduler.pipeline_depth):
            outcome = scheduler.update(self.due.popleft(), {})
            ended = " ".join(self.names[rid] for rid in outcome.finished)
        return batch, blocks, ended


def cached(blocks=10, max_len=40):
    """A set-up with block reuse; blocks of one token are cut into those of four."""
    cache = CacheSize(4 * blocks + 1, 1, enable_prefix_caching=True)
    return EngineSetup(setup_of().gpu, cache, max_len, setup_of().order)


def test_whoever_is_let_in_can_run_to_the_longest_end():
    # 5 blocks of 4; a reserves 5 + 7 = 12 tokens, 3 blocks; b 3 + 6 = 9, 3 blocks
    engine = Engine(SMALL)
    engine.add("a", 5, 3, max_tokens=7)
    engine.add("b", 3, 6)
    engine.add("c", 1, 2)  # would fit beside a, but nobody overtakes
    assert engine.step() == ("a5", "2+1", "")
    assert engine.step() == ("a1", "2+1", "")
    assert engine.step() == ("a1", "2+1", "a")
    assert engine.step() == ("b3 c1", "2+2", "")


def test_what_is_owed_is_taken_when_a_block_is_full_and_not_before():
    engine = Engine(SMALL)
    engine.add("a", 4, 6)  # 10 tokens: 3 blocks; the last of them gets no KV
    rows = [engine.step() for _ in range(6)]
    assert [blocks for _, blocks, _ in rows] == ["1+2", "2+1", "2+1", "2+1", "2+1", "3+0"]
    assert rows[-1][2] == "a"
    scheduler = engine.scheduler
    assert (scheduler.kv_blocks_used, scheduler.num_owed_blocks) == (0, 0)


def test_generations_come_first_and_whole_prompts_share_what_is_left_of_the_tokens():
    engine = Engine(SMALL, slots=60)
    engine.add("a", 2, 3)
    engine.add("b", 10, 3)
    engine.add("c", 10, 1)
    assert engine.step()[0] == "a2 b10"
    assert engine.step()[0] == "a1 b1 c10"
    assert engine.step()[0] == "a1 b1"


def test_a_whole_prompt_waits_for_a_step_in_which_it_fits():
    engine = Engine(SMALL, slots=60)
    engine.add("a", 2, 3)
    engine.add("b", 12, 1)
    assert [engine.step()[0] for _ in range(4)] == ["a2", "a1", "a1", "b12"]


def test_chunked_context_cuts_prompts_into_whole_blocks():
    # 12 tokens: 2 of a and 10 are left, which is 2 blocks; c waits for b's last chunk
    engine = Engine(CHUNKED, slots=60, max_len=40)
    engine.add("a", 2, 4)
    engine.add("b", 22, 2)
    engine.add("c", 1, 1)
    rows = [engine.step() for _ in range(4)]
    assert [batch for batch, _, _ in rows] == ["a2 b8", "a1 b8", "a1 b6 c1", "a1 b1"]
    # the blocks of a whole prompt are taken with its first chunk
    assert rows[0][1] == "7+1"


def test_chunks_are_not_cut_where_a_prompt_fits():
    engine = Engine(CHUNKED, slots=60)
    engine.add("a", 5, 2)
    engine.add("b", 6, 2)
    assert engine.step()[0] == "a5 b6"


def test_seats():
    engine = Engine(SMALL, slots=60)
    for name in "abcd":
        engine.add(name, 1, 2)
    assert engine.step()[0] == "a1 b1 c1"
    assert engine.step()[2] == "a b c"
    assert engine.step()[0] == "d1"


def test_tokens_may_run_out_before_the_generations_do():
    engine = Engine(TensorRTLLM(3, 2, tokens_per_block=4), slots=60)
    for name in "abc":
        engine.add(name, 1, 3)
    assert engine.step()[0] == "a1 b1"
    assert engine.step()[0] == "a1 b1"
    assert engine.step() == ("a1 b1", "2+0", "a b")
    assert engine.step()[0] == "c1"


def test_with_overlap_a_capped_reply_is_not_planned_again_and_keeps_its_seat_for_a_step():
    engine = Engine(TensorRTLLM(1, 12, tokens_per_block=4, disable_overlap_scheduler=False))
    engine.add("a", 2, 2)
    engine.add("b", 2, 1)
    assert engine.step() == ("a2", "1+0", "")
    assert engine.step() == ("a1", "1+0", "")
    assert engine.step() == ("", "1+0", "a")  # its last token is in flight
    assert engine.step()[0] == "b2"


def test_with_overlap_a_reply_that_stops_by_itself_is_computed_once_more():
    engine = Engine(OVERLAPPED)
    engine.add("a", 3, 2, max_tokens=6)
    engine.add("b", 3, 4)
    assert engine.step() == ("a3 b3", "2+3", "")
    assert engine.step() == ("a1 b1", "2+3", "")
    # in vain: nobody knows yet that a has ended
    assert engine.step() == ("a1 b1", "4+1", "a")
    assert engine.step() == ("b1", "2+0", "")
    assert engine.step() == ("", "2+0", "b")


def test_a_prefix_is_found_when_the_prompt_that_brought_it_is_done():
    scheduler = SMALL.start(cached())
    content = SharedPrefix(0, 8)
    for rid in range(3):
        scheduler.add(Request(rid, 0, 10, 2, 2, content=content))
    first = scheduler.schedule(0)
    assert [(a.rid, a.cached_tokens) for a in first.admitted] == [(0, 0)]
    scheduler.update(first, {})
    # rid 1 counts with its 10 tokens, of which it computes 2; so rid 2 does not fit beside it
    second = scheduler.schedule(0)
    assert [(a.rid, a.cached_tokens) for a in second.admitted] == [(1, 8)]
    assert [(w.rid, w.num_tokens, w.num_computed) for w in second.work] == [(0, 1, 10), (1, 2, 8)]
    assert scheduler.kv_blocks_used == 3 + 1
    assert scheduler.prefix_stats == PrefixStats(20, 8)


def test_a_reply_is_found_when_its_request_has_ended():
    scheduler = SMALL.start(cached())
    content = SharedPrefix(0, 10**6)
    scheduler.add(Request(0, 0, 4, 5, 5, content=content))
    scheduler.add(Request(1, 0, 12, 1, 1, content=content))
    cached_tokens = {}
    for _ in range(6):
        plan = scheduler.schedule(0)
        cached_tokens |= {a.rid: a.cached_tokens for a in plan.admitted}
        scheduler.update(plan, {})
    assert cached_tokens == {0: 0, 1: 8}


def test_without_reuse_nothing_is_looked_up():
    scheduler = SMALL.start(setup_of())
    scheduler.add(Request(0, 0, 4, 1, 1, content=SharedPrefix(0, 4)))
    assert scheduler.schedule(0).admitted[0].cached_tokens == 0
    assert scheduler.prefix_stats == PrefixStats(0, 0)


def test_refused_at_the_door():
    refuse = SMALL.start(setup_of(max_len=40)).reject_reason
    assert refuse(request(0, 0, 12, 8)) is None
    assert refuse(request(0, 0, 13, 1)) == "prompt = 13 > max_num_tokens 12"
    assert refuse(request(0, 0, 12, 9)) == "blocks to reserve = 6 > 5 blocks of KV cache"
    assert refuse(request(0, 0, 12, 29)) == "prompt + max_tokens = 41 > max_model_len 40"
    assert CHUNKED.start(setup_of(max_len=40)).reject_reason(request(0, 0, 13, 1)) is None


def test_the_queue_order_ranks_who_waits():
    engine = Engine(TensorRTLLM(1, 12, tokens_per_block=4), order=Priority())
    urgent = Request(1, 0, 3, 1, 1, priority=-1, content=Unique())
    engine.add("a", 2, 1)
    engine.names.append("b")
    engine.scheduler.add(urgent)
    assert [engine.step()[0] for _ in range(2)] == ["b3", "a2"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_num_tokens": 0}, "max_num_tokens"),
        ({"enable_chunked_prefill": True, "max_num_tokens": 31}, "nearest: 32"),
        ({"enable_chunked_prefill": "no"}, "enable_chunked_prefill"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(SettingError, match=message):
        TensorRTLLM(**settings)


def test_setups_that_cannot_be():
    with pytest.raises(SettingError, match="tokens_per_block"):
        TensorRTLLM().start(setup_of())
    with pytest.raises(SettingError, match="preempts nobody"):
        SMALL.start(setup_of(victim=object()))
