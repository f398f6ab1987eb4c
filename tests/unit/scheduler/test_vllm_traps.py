"""What a naive model of vLLM gets wrong, one story each; numbers are worked out in the comments."""

import pytest
from serving import engine, request
from stepping import Stepper

from servesim.content import SharedPrefix
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.records import PrefixStats, StepOutcome


def test_a_fully_cached_prompt_computes_its_last_block_again():
    engine = Stepper(blocks=13)
    engine.add("a", 12, 1, content=SharedPrefix(0, 12))
    engine.run_out()
    engine.add("b", 12, 1, content=SharedPrefix(0, 12))
    assert engine.step().batch == "b4"  # (12 − 1) // 4 = 2 blocks may be hit
    assert engine.cached["b"] == 8


def test_hit_blocks_that_nobody_holds_cost_capacity():
    engine = Stepper(blocks=5, max_len=16, max_num_seqs=2)
    engine.add("x", 8, 1, content=SharedPrefix(0, 8))
    engine.run_out()
    engine.add("y", 7, 3)
    engine.add("z", 9, 1, content=SharedPrefix(0, 8))
    # y holds 2 of 4 blocks; z's 2 hits are the other 2, and its third block is not there
    assert engine.step().batch == "y7"


def test_two_equal_prompts_of_one_step_share_blocks_at_once():
    engine = Stepper(blocks=13, max_num_batched_tokens=32)
    for name in "ab":
        engine.add(name, 12, 2, content=SharedPrefix(0, 12))
    assert engine.step().batch == "a12 b4"  # keys are there when a is scheduled, not when it ran


def test_a_step_that_preempts_admits_nobody():
    engine = Stepper(blocks=7, max_num_seqs=3, max_len=24, order=ShortestPrompt())
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.steps(5)
    engine.add("c", 2, 1)
    # a's thirteenth token takes b's blocks; one would do for c, the head, and two are free
    assert engine.step() == ("a1", "b", "a1", "", "2→2")


def test_the_victim_is_the_last_admitted_and_not_the_latest_arrival():
    engine = Stepper(blocks=5, max_len=16, order=ShortestPrompt())
    engine.add("long", 8, 5, arrived_s=0)
    engine.add("short", 4, 5, arrived_s=1)
    assert engine.step().batch == "short4 long8"
    # short takes the fourth block, long needs one too
    assert engine.step()[:2] == ("short1", "long")


def test_the_victim_is_the_last_admitted_and_not_the_largest():
    engine = Stepper(blocks=5, max_len=16)
    engine.add("large", 8, 5)
    engine.add("small", 4, 5)
    assert engine.step().batch == "large8 small4"
    # large takes the fourth block, small needs one too
    assert engine.step()[:2] == ("large1", "small")


def test_a_preempted_request_finds_its_blocks_again():
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.run_out()
    # of 12 tokens with KV, the survivor took one block: 8 are found, 4 are computed again
    assert (engine.cached["b"], engine.recomputed) == (8, {"b": 4})


def test_a_preempted_request_goes_to_the_front_of_the_queue():
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24)
    for name in "abc":
        engine.add(name, 8, 9)
    rows = engine.run_out()
    assert next(row.preempted for row in rows if row.preempted) == "b"
    assert next(row.batch for row in rows if "c" in row.batch) == "b5 c8"


def test_a_head_that_does_not_fit_stops_admission():
    engine = Stepper(caching=False)
    engine.add("a", 16, 6)
    engine.step()
    engine.add("big", 20, 2)  # 5 blocks, 4 are free
    engine.add("small", 3, 2)
    assert engine.step().batch == "a1"


def test_the_list_is_served_in_order_until_the_budget_is_spent():
    engine = Stepper(blocks=17, num_speculative_tokens=4, max_num_batched_tokens=8)
    engine.add("a", 4, 9)
    engine.add("b", 2, 9)
    engine.add("c", 2, 9)
    assert engine.step().batch == "a4 b2 c2"
    # three decodes, but those before c take 1 + 4 and, cut to what is left, 1 + 2 tokens
    assert engine.step().batch == "a5 b3"
    assert engine.running() == "a b c"


def test_an_older_prefill_is_served_before_a_younger_decode():
    engine = Stepper(
        blocks=17, max_len=40, max_num_batched_tokens=8, long_prefill_token_threshold=6
    )
    engine.add("long", 20, 2)
    engine.add("young", 2, 9)
    assert engine.steps(2) == ["long6 young2", "long6 young1"]
    engine.add("next", 4, 2)
    # what the older two leave
    assert engine.step().batch == "long6 young1 next1"


def test_the_full_sequence_gate_is_no_reservation():
    engine = Stepper(
        blocks=7, max_len=20, caching=False, long_prefill_token_threshold=8, max_num_seqs=2
    )
    engine.add("a", 16, 2)
    engine.add("b", 16, 2)
    # a has 2 of 6 blocks and will need 4; the 4 of b are free now, so b is let in
    assert engine.step().batch == "a8 b8"
    assert engine.step()[:2] == ("a8", "b")


def test_the_full_sequence_gate_does_not_count_the_reply_to_come():
    engine = Stepper(blocks=5, max_len=16, caching=False)
    engine.add("a", 7, 9)
    engine.add("b", 7, 9)  # each will need all 4 blocks
    assert engine.step().batch == "a7 b7"
    assert any(row.preempted for row in engine.run_out())


def test_priority_preempts_nobody_for_a_waiting_request():
    engine = Stepper(blocks=5, caching=False, max_len=20, order=Priority())
    engine.add("low", 12, 5, priority=9)
    engine.step()
    engine.add("urgent", 8, 2, priority=0)  # two blocks; low leaves one
    assert engine.steps(4) == ["low1"] * 4
    assert engine.step()[:2] == ("urgent8", "")


def test_one_of_the_blocks_is_the_null_block():
    engine = Stepper(blocks=5)
    assert engine.scheduler.kv_blocks == 4
    engine.add("a", 16, 1)
    assert engine.step().free == "0→4"


def test_free_blocks_queue_unkeyed_first_and_deepest_first():
    engine = Stepper(blocks=7)
    engine.add("a", 10, 1, content=SharedPrefix(0, 10))
    engine.run_out()
    # the half block 3 is the next one out; of the full ones, the deeper before the first
    assert engine.scheduler.free_order() == [3, 4, 5, 6, 2, 1]


@pytest.mark.parametrize(("drops", "batch"), [(False, "b1"), (True, "b5")])
def test_eagle_computes_one_more_matched_block(drops, batch):
    engine = Stepper(blocks=13, eagle_block_drop=drops)
    engine.add("a", 13, 1, content=SharedPrefix(0, 13))
    engine.run_out()
    engine.add("b", 13, 1, content=SharedPrefix(0, 13))
    assert engine.step().batch == batch  # 3 blocks match, 12 or 8 tokens are taken
    hits = 8 if drops else 12
    assert engine.scheduler.prefix_stats == PrefixStats(26, hits)


def test_an_eagle_victim_drops_a_block_of_its_own_too():
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24, eagle_block_drop=True)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.run_out()
    assert (engine.cached["b"], engine.recomputed) == (4, {"b": 8})  # instead of 8 and 4


def test_the_last_sampled_token_has_no_kv():
    engine = Stepper()
    engine.add("a", 5, 4)  # 5 + 4 − 1 = 8 slots: two blocks, not three
    assert {row.free.split("→")[0] for row in engine.run_out()} == {"6"}


def test_the_final_chunk_samples_and_one_decode_less_follows():
    engine = Stepper(max_num_batched_tokens=4)
    engine.add("a", 10, 3)
    rows = engine.run_out()
    assert [row.batch for row in rows] == ["a4", "a4", "a2", "a1", "a1"]
    assert [row.emitted for row in rows] == ["", "", "a1", "a1", "a1"]
    whole = Stepper()
    whole.add("a", 10, 3)
    assert [row[:3] for row in whole.run_out()] == [(f"a{n}", "", "a1") for n in (10, 1, 1)]


def test_max_num_seqs_counts_requests_in_mid_prefill():
    engine = Stepper(max_num_seqs=1, max_num_batched_tokens=8)
    engine.add("long", 12, 1)
    engine.add("short", 2, 1)
    assert engine.steps(3) == ["long8", "long4", "short2"]


def test_drafts_take_tokens_of_the_budget():
    engine = Stepper(blocks=17, num_speculative_tokens=3, max_num_batched_tokens=8)
    for name in "ab":
        engine.add(name, 4, 9)
    engine.step()
    engine.add("c", 4, 2)
    assert engine.step().batch == "a4 b4"  # two verifications, and c waits
    assert engine.drafts() == "a3 b3"


def test_a_draft_that_does_not_fit_the_budget_is_left_out():
    engine = Stepper(blocks=17, num_speculative_tokens=4, max_num_batched_tokens=8)
    for name in "ab":
        engine.add(name, 4, 9)
    engine.step()
    assert engine.step().batch == "a5 b3"
    assert engine.drafts() == "a4 b2"


class TestAsynchronousScheduling:
    def test_an_eos_wastes_the_step_planned_behind_it(self):
        engine = Stepper(async_scheduling=True)
        engine.add("a", 4, 2, max_tokens=8)
        assert engine.step() == ("a4", "", "", "", "7→7")
        assert engine.step() == ("a1", "", "a1", "", "6→6")
        # EOS is in the output of the second step, which is not known yet
        assert engine.step() == ("a1", "", "a1", "a", "6→8")
        assert engine.outstanding  # whose output is dropped
        assert engine.step() == ("", "", "", "", "8→8")

    def test_a_length_stop_wastes_none(self):
        engine = Stepper(async_scheduling=True)
        engine.add("a", 4, 2)
        assert [engine.step()[:4] for _ in range(3)] == [
            ("a4", "", "", ""),
            ("a1", "", "a1", ""),
            ("", "", "a1", "a"),
        ]

    def test_the_wasted_step_holds_a_seat_and_blocks(self):
        batches = {}
        for mode in (False, True):
            engine = Stepper(async_scheduling=mode, max_num_seqs=1)
            engine.add("a", 4, 2, max_tokens=8)
            engine.add("b", 4, 1)
            batches[mode] = engine.steps(4)
        assert batches[False] == ["a4", "a1", "b4", ""]
        assert batches[True] == ["a4", "a1", "a1", "b4"]

    def test_memory_is_free_for_the_plan_after_the_next(self):
        batches = {}
        for mode in (False, True):
            engine = Stepper(async_scheduling=mode, blocks=5, max_len=16)
            engine.add("a", 13, 2)
            engine.add("b", 13, 1)
            batches[mode] = engine.steps(4)
        assert batches[False] == ["a13", "a1", "b13", ""]
        assert batches[True] == ["a13", "a1", "", "b13"]

    def test_an_accepted_draft_is_assumed_until_it_is_known(self):
        engine = Stepper(async_scheduling=True, blocks=17, num_speculative_tokens=2)
        engine.add("a", 4, 9)
        assert engine.steps(2) == ["a4", "a3"]  # 1 + 2 drafts, before the first token is there
        row = engine.step({"a": 0})  # planned on top of two accepted drafts …
        assert (row.batch, row.emitted) == ("a3", "a1")  # … of which none was
        assert engine.step({"a": 2})[:3] == ("a3", "", "a3")

    def test_depth(self):
        assert Stepper(async_scheduling=True).scheduler.pipeline_depth == 2
        assert Stepper().scheduler.pipeline_depth == 1


def test_the_lone_request_ignores_the_long_prefill_threshold():
    engine = Stepper(long_prefill_token_threshold=4)
    engine.add("a", 10, 2)
    assert engine.step().batch == "a10"
    older = Stepper(release="0.20", long_prefill_token_threshold=4)
    older.add("a", 10, 2)
    assert older.step().batch == "a4"


@pytest.mark.parametrize(
    ("release", "batches"),
    [("0.11", ["a10 c3", "a1 c1 b8"]), ("0.15", ["a10", "a1 b8 c3"])],
)
def test_without_chunking_a_long_head_stops_admission_or_is_passed_over(release, batches):
    engine = Stepper(release=release, enable_chunked_prefill=False, max_len=16)
    engine.add("a", 10, 3)
    engine.add("b", 8, 2)
    engine.add("c", 3, 2)
    assert engine.steps(2) == batches


def test_the_smaller_priority_is_the_more_urgent():
    engine = Stepper(max_num_seqs=1, order=Priority())
    engine.add("nine", 4, 1, priority=9)
    engine.add("one", 4, 1, priority=1)
    assert engine.steps(2) == ["one4", "nine4"]


@pytest.mark.parametrize(
    ("release", "stats"),
    [
        # a and b once each, 8 tokens; b's return with 13 of them, 8 found, is counted apart
        ("0.33", PrefixStats(8 + 8, 0)),
        ("0.20", PrefixStats(8 + 8, 0)),
        # b is looked up at the three steps until a ends, and at its return
        ("0.11", PrefixStats(8 + 8 + 4 * 13, 4 * 8)),
    ],
)
def test_the_hit_rate_leaves_out_preempted_requests_in_all_but_old_releases(release, stats):
    engine = Stepper(release=release, blocks=7, max_num_seqs=2, max_len=24)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    batches = [row.batch for row in engine.run_out()]
    assert batches[:10] == ["a8 b8", *["a1 b1"] * 4, *["a1"] * 4, "b5"]
    assert engine.scheduler.prefix_stats == stats


class TestAborts:
    """A client gives up: the request leaves its queue and its blocks are free at once."""

    def test_waiting(self):
        engine = Stepper(max_num_seqs=1)
        for name in "abc":
            engine.add(name, 4, 2)
        engine.step()
        assert engine.abort("b")
        assert [row.batch for row in engine.run_out()] == ["a1", "c4", "c1"]

    def test_running(self):
        engine = Stepper()
        engine.add("a", 5, 9)
        engine.add("b", 5, 2)
        assert engine.step().free == "4→4"
        assert engine.abort("a")
        assert engine.scheduler.num_free_blocks == 6
        assert engine.step() == ("b1", "", "b1", "b", "6→8")

    def test_preempted(self):
        engine = Stepper(blocks=7, max_num_seqs=2, max_len=24)
        engine.add("a", 8, 9)
        engine.add("b", 8, 9)
        while not engine.step().preempted:
            pass
        assert engine.abort("b")
        assert engine.scheduler.num_waiting == 0
        assert [row.finished for row in engine.run_out()][-1] == "a"

    @pytest.mark.parametrize("mode", [False, True])
    def test_in_flight(self, mode):
        engine = Stepper(async_scheduling=mode)
        engine.add("a", 4, 9)
        plan = engine.scheduler.schedule(0)
        assert engine.abort("a")
        assert engine.scheduler.num_free_blocks == 8  # at once, though the step still writes
        assert engine.scheduler.update(plan, {}) == StepOutcome((), ())

    def test_who_has_ended_or_was_never_there_is_ignored(self):
        engine = Stepper()
        engine.add("a", 4, 1)
        engine.run_out()
        assert not engine.abort("a")
        assert not engine.scheduler.abort(77)


class TestAbortsBetweenSteadySteps:
    """The scheduler that skips steps gives a request up in the middle of its decode group."""

    def grouped(self):
        scheduler = engine(blocks=9)
        for rid, (prompt, output) in enumerate([(5, 9), (6, 9), (3, 4)]):
            scheduler.add(request(rid, 0, prompt, output))
        scheduler.update(scheduler.schedule(0), {})
        return scheduler

    def test_before_a_plan(self):
        scheduler = self.grouped()
        assert scheduler.steady_steps() == 3
        assert list(scheduler.advance(2)) == [0, 1]  # request 2: a block for its fifth token
        assert scheduler.abort(2)
        assert scheduler.abort(0)
        assert (scheduler.running, scheduler.kv_blocks_used) == ((1,), 2)
        assert scheduler.steady_steps() == 6  # 9 tokens, 3 of which it has
        assert list(scheduler.advance(1)) == [1]  # its ninth token of KV
        assert scheduler.kv_slots_unused == 3

    def test_in_flight(self):
        scheduler = self.grouped()
        plan = scheduler.schedule(0)
        assert plan.decodes.seqs == 3
        assert scheduler.abort(1)
        assert scheduler.update(plan, {}) == StepOutcome((), ())
        assert [work.num_computed for work in scheduler.full_work(scheduler.schedule(0))] == [6, 4]
