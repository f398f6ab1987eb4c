"""The running loop: order, growth, victims, and what an update takes in."""

import pytest
from stepping import Stepper

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.records import Request


def test_the_last_chunk_samples_and_o_minus_one_decodes_follow():
    engine = Stepper(max_num_batched_tokens=4)
    engine.add("a", 10, 3)
    rows = engine.run_out()
    assert [row.batch for row in rows] == ["a4", "a4", "a2", "a1", "a1"]
    assert [row.emitted for row in rows] == ["", "", "a1", "a1", "a1"]


def test_the_last_sampled_token_has_no_kv():
    engine = Stepper()
    engine.add("a", 5, 4)  # 5 + 4 - 1 tokens: two blocks, not three
    assert {row.free.split("→")[0] for row in engine.run_out()} == {"6"}


def test_blocks_of_the_finished_are_free_for_the_next_plan():
    engine = Stepper(blocks=5, max_len=16, max_num_seqs=2)
    engine.add("a", 14, 2)
    engine.add("b", 14, 2)
    assert engine.steps(3) == ["a14", "a1", "b14"]


def test_an_eos_ends_the_reply_before_max_tokens():
    engine = Stepper()
    request = Request(rid=0, arrival_ps=0, prompt_tokens=4, output_tokens=3, max_tokens=8)
    engine.names.append("a")
    engine.scheduler.add(request)
    assert [row.finished for row in engine.run_out()] == ["", "", "a"]


def test_a_resumed_request_has_lost_its_seniority():
    engine = Stepper(blocks=8, caching=False, max_num_seqs=3, order=Priority(), max_len=24)
    engine.add("low", 8, 12, priority=9)
    engine.step()
    engine.add("a", 6, 12, priority=1)
    engine.add("b", 5, 5, priority=1)
    engine.step()
    assert engine.running() == "low a b"
    while not engine.step().preempted:
        pass
    assert engine.running() == "a b"
    assert [engine.step().batch, engine.step().batch] == ["a1 b1", "a1 low12"]
    assert engine.running() == "a low"


def crowded(order, **limits):
    """An older request that needs a third block when none is left, and a younger one."""
    engine = Stepper(blocks=5, caching=False, max_len=16, order=order, **limits)
    engine.add("old", 4, 9, priority=9)
    engine.step()
    engine.add("young", 4, 5, priority=0, arrived_s=1)
    assert engine.steps(4) == ["old1 young4", "old1 young1", "old1 young1", "old1 young1"]
    return engine


def test_fcfs_preempts_the_last_admitted():
    assert crowded(Fcfs()).step()[:2] == ("old1", "young")


def test_priority_preempts_the_least_urgent_and_goes_on_behind_it():
    assert crowded(Priority()).step()[:2] == ("young1", "old")


def test_other_orders_leave_the_victim_to_the_engine():
    assert crowded(ShortestPrompt()).step()[:2] == ("old1", "young")


class MostBlocks:
    def key(self, running):
        return (running.kv_blocks,)


def test_a_victim_policy_chooses_among_all_who_run():
    engine = Stepper(blocks=5, max_len=16, victim=MostBlocks())
    engine.add("large", 8, 5)
    engine.add("small", 4, 5)
    assert engine.step().batch == "large8 small4"
    # large has taken the fourth block when small needs one: it gives its token back
    assert engine.step()[:2] == ("small1", "large")


@pytest.mark.parametrize("first", ["early", "late"])
def test_equal_priority_preempts_the_later_arrival(first):
    arrivals = {"early": 1, "late": 5}
    second = "late" if first == "early" else "early"
    engine = Stepper(blocks=5, caching=False, max_len=16, order=Priority())
    engine.add(first, 4, 9, arrived_s=arrivals[first])
    engine.step()
    engine.add(second, 4, 5, arrived_s=arrivals[second])
    engine.steps(4)
    assert engine.step()[:2] == ("early1", "late")


def test_a_victim_gives_back_the_tokens_of_this_step():
    engine = Stepper(
        blocks=7,
        caching=False,
        order=Priority(),
        max_num_batched_tokens=6,
        long_prefill_token_threshold=3,
        scheduler_reserve_full_isl=False,
    )
    engine.add("low", 20, 4, priority=9)
    engine.step()
    engine.add("high", 3, 8, priority=0)
    engine.add("mid", 20, 4, priority=1)
    assert engine.steps(2) == ["low3 high3", "low3 high1 mid2"]
    # low takes the last block, then high needs one: low's 3 tokens go to mid, who gets 3, not 2
    assert engine.step()[:2] == ("high1 mid3", "low")


def test_a_running_request_ignores_the_watermark():
    engine = Stepper(blocks=5, watermark=0.5, max_len=16)
    engine.add("a", 4, 12)
    assert {row.preempted for row in engine.run_out()} == {""}


def test_drafts_are_cut_at_max_model_len():
    engine = Stepper(max_len=12, num_speculative_tokens=4)
    engine.add("a", 8, 4)
    engine.step()
    row = engine.step({"a": 2})
    assert (row.batch, engine.drafts()) == ("a3", "a2")  # position 11 is the last to be computed
    assert (row.emitted, row.finished) == ("a3", "a")


def test_a_rejected_draft_keeps_its_block():
    engine = Stepper(caching=False, num_speculative_tokens=4)
    engine.add("a", 4, 6)
    assert engine.step().free == "7→7"
    assert engine.step().free == "5→5"  # 5 known + 4 drafts: 9 slots, 3 blocks; 5 tokens stay
    assert engine.step().free == "5→5"


def test_accepted_tokens_are_cached_when_the_reply_ends_with_them():
    engine = Stepper(num_speculative_tokens=4)
    engine.add("a", 4, 5)
    engine.step()
    assert engine.step({"a": 3})[2:4] == ("a4", "a")
    # 4 + 5 tokens were run, one draft was rejected: two full blocks to the tail, the third first
    assert engine.scheduler.free_order() == [3, 4, 5, 6, 7, 8, 2, 1]


def test_tokens_cut_off_by_a_stop_are_not_cached():
    engine = Stepper(num_speculative_tokens=4)
    engine.add("a", 4, 4)
    engine.step()
    assert engine.step({"a": 4})[2:4] == ("a3", "a")  # five sampled, two beyond max_tokens
    # seven tokens of KV count: the second block is not full
    assert engine.scheduler.free_order() == [3, 2, 4, 5, 6, 7, 8, 1]


def test_requests_in_mid_prefill_take_no_drafts():
    engine = Stepper(max_num_batched_tokens=8, num_speculative_tokens=2)
    engine.add("a", 12, 4)
    engine.step()
    engine.scheduler.propose({0: 2})
    assert engine.step().batch == "a4"


def test_drafts_for_a_finished_request_are_ignored():
    engine = Stepper(num_speculative_tokens=2)
    engine.add("a", 4, 1)
    engine.step()
    engine.scheduler.propose({0: 2})
    assert engine.scheduler.num_running == 0


def test_counters():
    engine = Stepper(max_num_seqs=1)
    engine.add("a", 8, 2)
    engine.add("b", 4, 1)
    scheduler = engine.scheduler
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.kv_blocks_used) == (0, 2, 0)
    engine.step()
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.kv_blocks_used) == (1, 1, 2)
    engine.run_out()
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.kv_blocks_used) == (0, 0, 0)
    empty = scheduler.schedule(0)
    assert empty.num_tokens == 0
    assert scheduler.update(empty, {}).finished == ()
