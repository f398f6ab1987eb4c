"""What a simulator of SGLang easily gets wrong, one small story each."""

from dataclasses import dataclass

import pytest
from sglang_stepping import Stepper

from servesim.content import SharedPrefix, Tokens
from servesim.policies.order.shortest_prompt import ShortestPrompt


def test_a_prefill_batch_is_alone_and_decodes_wait():
    e = Stepper(tokens=100)
    e.add("a", 6, 5)
    assert e.steps(2) == ["a:6", "a:1"]
    e.add("b", 8, 3)
    assert e.step() == "b:8"  # a has no token in this step
    assert e.step() == "a:1 b:1"


def test_mixed_chunks_let_decodes_ride_along():
    e = Stepper(tokens=100, enable_mixed_chunk=True, chunked_prefill_size=8)
    e.add("a", 6, 5)
    e.step()
    e.add("b", 12, 3)
    # of 8 tokens the decode takes 1, so b gets 7 and then its 5 others; it is merged before a
    assert e.steps(3) == ["b:7 a:1", "b:5 a:1", "b:1 a:1"]


def test_a_prompt_is_split_by_the_chunk_and_goes_on_first():
    e = Stepper(tokens=100, chunked_prefill_size=8)
    e.add("a", 18, 2)
    e.add("b", 5, 2)
    assert e.steps(3) == ["a:8", "a:8", "a:2 b:5"]
    assert e.step() == "a:1 b:1"


def test_the_last_token_is_computed_again_on_a_full_hit():
    e = Stepper(tokens=100)
    for name in "ab":
        e.add(name, 20, 2, content=Tokens(tuple(range(20))))
        e.run_out()
    assert e.cached == {"a": 0, "b": 19}


def test_matches_are_token_exact_at_page_size_1_and_rounded_beyond():
    for page_size, cached in ((1, 17), (4, 16), (16, 16)):
        e = Stepper(tokens=160, page_size=page_size)
        for name in "ab":
            e.add(name, 30, 2, content=SharedPrefix(0, 17))
            e.run_out()
        assert e.cached["b"] == cached


def test_decoded_tokens_are_shared_only_when_their_request_has_ended():
    talk = Tokens(tuple(range(30)))
    e = Stepper(tokens=200, chunked_prefill_size=64)
    e.add("a", 10, 15, content=talk)  # its reply is tokens 10 … 24
    e.steps(12)
    e.add("early", 25, 1, content=talk)
    e.step()
    assert e.cached["early"] == 10  # a's prompt; 11 of its reply are computed by now
    e.run_out()
    e = Stepper(tokens=200)
    e.add("a", 10, 15, content=talk)
    e.run_out()
    e.add("late", 26, 1, content=talk)
    e.step()
    assert e.cached["late"] == 24  # all but the last sampled token, which has no KV


def test_head_of_line_a_small_request_does_not_overtake():
    e = Stepper(tokens=80)
    e.add("a", 30, 4)
    e.step()
    e.add("big", 40, 12)
    e.add("small", 2, 2)
    # big would take 40 + 12 + 1 of 80 - 30 slots, so small, which would fit, is not even tried
    assert e.step() == "a:1"
    assert e.waiting() == "big small"
    e.run_out()
    assert e.finished == ["a", "small", "big"]


@pytest.mark.parametrize(("max_tokens", "batch"), [(65, "b:10"), (66, "a:1")])
def test_a_new_request_is_charged_all_it_may_generate_and_a_running_one_a_part(max_tokens, batch):
    e = Stepper(tokens=100, max_len=100)
    e.add("a", 10, 20)
    e.step()
    # b replies with 2 tokens, but is charged 10 + max_tokens + 1; a, which holds 10 slots, is
    # charged 0.7 of the 19 tokens it may yet generate: 100 - 10 - 13.3 = 76.7
    e.add("b", 10, 2, max_tokens=max_tokens)
    assert e.step() == batch


def test_the_ratio_sinks_with_every_decode_step_and_is_reset_when_idle():
    e = Stepper(tokens=100)
    e.add("a", 4, 4)
    ratios = [e.engine.new_token_ratio]
    for _ in range(4):
        e.step()
        ratios.append(e.engine.new_token_ratio)
    step = (0.7 - 0.7 * 0.14) / 600
    assert ratios == pytest.approx([0.7, 0.7, 0.7 - step, 0.7 - 2 * step, 0.7])


class TestRetraction:
    """Three requests that outgrow a pool of 60: prompts 10, replies of 30."""

    def engine(self, **more):
        e = Stepper(tokens=60, schedule_conservativeness=0.0, clip_max_new_tokens=1, **more)
        e.add("old", 10, 30)
        e.step()
        e.step()
        e.add("big", 12, 30)
        e.add("small", 11, 30)
        return e

    def until_retraction(self, e):
        while not e.retracted():
            e.step()
        return e.retracted()

    def test_the_fewest_generated_tokens_go_first_and_of_them_the_longest_prompt(self):
        e = self.engine()
        assert self.until_retraction(e) == "big"  # big and small have generated equally many

    def test_a_victim_goes_to_the_back_of_the_queue(self):
        e = self.engine()
        e.step()
        e.add("new", 40, 9)  # too large to be admitted meanwhile
        self.until_retraction(e)
        assert e.waiting() == "new big"

    def test_a_victims_reply_is_thrown_away_and_its_prompt_can_be_found_again(self):
        e = self.engine(radix_eviction_policy="lru")
        self.until_retraction(e)
        # 11 + 12 + 11 slots at big's prefill leave 26: 8 decode steps of 3, so big has 1 + 8 tokens
        big = e.engine._waiting.entries[0]
        assert (big.generated, big.computed) == (9, 0)
        while "big" not in e.step():
            pass
        work = next(w for w in e.plan.work if e.names[w.rid] == "big")
        assert work.num_tokens + work.num_computed == 21
        assert e.plan.recomputed == ((1, 20 - work.num_computed),)  # the 21st had no KV before
        assert e.plan.admitted[0].resumed

    def test_the_ratio_jumps_to_what_has_been_generated(self):
        e = self.engine()
        self.until_retraction(e)
        kept = list(e.engine._running)
        # the plan's step is over, so each of the two has one token more than at the retraction
        generated = sum(s.generated - 1 for s in kept)
        assert e.engine.new_token_ratio == (generated + 20 * 2) / (60 + 1)

    def test_a_victim_policy_chooses_instead(self):
        @dataclass(frozen=True)
        class MostGenerated:
            def key(self, running):
                return (running.generated_tokens,)

        assert self.until_retraction(self.engine(victim=MostGenerated())) == "old"

    def test_everyone_ends_all_the_same(self):
        e = self.engine()
        e.run_out()
        assert sorted(e.finished) == ["big", "old", "small"]
        assert e.engine.kv_blocks_used == 0


class TestLongestPrefixMatch:
    """lpm: what is cached most goes first, up to 128 who wait."""

    def engine(self, waiting):
        e = Stepper(tokens=4000, schedule_policy="lpm", max_running_requests=1)
        e.add("warm", 40, 1, content=SharedPrefix(0, 39))
        e.run_out()
        e.add("first", 5, 1)
        for i in range(waiting - 2):
            e.add(f"other{i}", 5, 1)
        e.add("hit", 45, 1, content=SharedPrefix(0, 39))
        return e

    def test_the_cached_one_overtakes(self):
        assert self.engine(128).step() == "hit:6"

    def test_with_129_waiting_it_is_first_come_first_served(self):
        assert self.engine(129).step() == "first:5"

    def test_a_shared_prefix_that_is_not_cached_is_computed_once(self):
        e = Stepper(tokens=400, schedule_policy="lpm")
        for name in "abc":
            e.add(name, 40, 2, content=SharedPrefix(0, 36))
        e.add("d", 10, 2)
        assert e.step() == "a:40 d:10 b:40 c:40"  # b and c come last, yet in this same batch
        e = Stepper(tokens=400, schedule_policy="lpm", chunked_prefill_size=50)
        for name in "abc":
            e.add(name, 40, 2, content=SharedPrefix(0, 36))
        e.add("d", 10, 2)
        assert e.steps(2) == ["a:40 d:10", "b:4 c:4"]

    def test_without_a_cache_it_is_first_come_first_served(self):
        e = Stepper(tokens=400, schedule_policy="lpm", disable_radix_cache=True)
        assert e.engine._waiting._ranking.schedule_policy == "fcfs"


def test_a_smaller_priority_is_more_urgent_as_everywhere_here():
    # SGLang's own numbers go the other way: the larger, the more urgent
    e = Stepper(tokens=100, enable_priority_scheduling=True, max_running_requests=1)
    e.add("later", 5, 1, priority=2)
    e.add("urgent", 5, 1, priority=0)
    e.add("between", 5, 1, priority=1)
    e.run_out()
    assert e.finished == ["urgent", "between", "later"]


def test_the_longest_cap_goes_first_with_lof():
    e = Stepper(tokens=100, schedule_policy="lof", max_running_requests=1)
    e.add("short", 5, 1, max_tokens=2)
    e.add("long", 5, 1, max_tokens=9)
    e.run_out()
    assert e.finished == ["long", "short"]


def test_another_queue_order_ranks_instead():
    e = Stepper(tokens=100, order=ShortestPrompt(), max_running_requests=1)
    for name, prompt in (("long", 9), ("short", 2), ("middle", 5)):
        e.add(name, prompt, 1)
    e.run_out()
    assert e.finished == ["short", "middle", "long"]


def test_highest_response_ratio_next_ages_in_prefill_tokens():
    e = Stepper(tokens=400, max_len=200, schedule_policy="hrrn", max_running_requests=1)
    e.add("a", 50, 1)
    e.add("long", 100, 1)
    e.step()
    e.add("short", 10, 1)
    # 50 prompt tokens were run since long came: 50/100 against 0/10
    assert e.steps(2) == ["long:100", "short:10"]


def test_a_whole_leaf_is_evicted_for_a_single_token():
    e = Stepper(tokens=100, max_len=90)
    e.add("a", 60, 1)
    e.run_out()
    assert (e.engine.num_free_tokens, e.engine.num_evictable_tokens) == (40, 60)
    e.add("b", 39, 4)  # its prompt and a token fit, its second one needs a slot
    e.steps(2)
    assert (e.engine.num_free_tokens, e.engine.num_evictable_tokens) == (0, 60)
    e.step()
    assert (e.engine.num_free_tokens, e.engine.num_evictable_tokens) == (59, 0)


class TestOverlap:
    """A step is planned while the one before it runs: `step` plans one and takes in the last."""

    def test_a_reply_that_ends_by_itself_is_computed_once_more(self):
        e = Stepper(tokens=100, disable_overlap_schedule=False)
        e.add("eos", 6, 2, max_tokens=9)
        assert e.steps(4) == ["eos:6", "eos:1", "eos:1", ""]
        assert e.finished == ["eos"]

    def test_a_reply_that_its_cap_ends_is_not(self):
        e = Stepper(tokens=100, disable_overlap_schedule=False)
        e.add("cap", 6, 2)
        assert e.steps(3) == ["cap:6", "cap:1", ""]
        assert e.finished == ["cap"]

    def test_what_has_ended_holds_its_memory_until_it_is_known(self):
        for overlap, waits in ((True, ["", "b:30"]), (False, ["b:30", "b:1"])):
            e = Stepper(tokens=60, disable_overlap_schedule=not overlap, disable_radix_cache=True)
            e.add("a", 40, 1)
            e.step()
            e.add("b", 30, 2)
            assert e.steps(2) == waits

    def test_a_victims_token_in_flight_is_lost(self):
        e = Stepper(
            tokens=60,
            disable_overlap_schedule=False,
            schedule_conservativeness=0.0,
            clip_max_new_tokens=1,
        )
        e.add("a", 20, 15)
        e.add("b", 25, 15)
        while not e.retracted():
            e.step()
        # 45 slots of prompts, then 7 steps of two: at the eighth plan 7 tokens of each are known
        assert e.retracted() == "b"
        assert e.engine._waiting.entries[0].generated == 7
        e.run_out()
        assert sorted(e.finished) == ["a", "b"]
