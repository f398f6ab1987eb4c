"""Sarathi-Serve: stall-free chunks, a conservative slot test, victims, seniority."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_stepping import (
    CUTS,
    GAPS_PS,
    TIMERS,
    Stepper,
    assert_skipping_is_exact,
    cases,
    drive,
    setup,
)
from serving import request

from servesim.errors import ServesimError
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.policies.victim.most_blocks import MostBlocks
from servesim.scheduler.sarathi import Sarathi

# a full proof takes more: SERVESIM_EXAMPLES=20000 pytest tests/unit/scheduler/test_sarathi.py
EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "60"))
some = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def profiles(draw, machine):
    chunk = draw(st.sampled_from([4, 9, 30]))
    return Sarathi(chunk, draw(st.integers(1, min(chunk, 6))))


def test_decodes_never_stall_and_prompts_fill_the_chunk():
    engine = Stepper(Sarathi(8, 4), blocks=20)
    engine.add("a", 5, 6)
    assert engine.step() == "a5"
    engine.add("b", 14, 2)
    # seven of b beside a's token; where b leaves room, c begins
    assert engine.steps(2) == ["a1 b7", "a1 b7"]
    engine.add("c", 9, 2)
    assert engine.steps(3) == ["a1 b1 c6 >b", "a1 c3", "a1 c1 >a >c"]


def test_a_prompt_takes_all_its_blocks_with_its_first_chunk():
    engine = Stepper(Sarathi(8, 4), blocks=6)
    engine.add("a", 17, 2)
    assert engine.step() == "a8"
    assert engine.scheduler.kv_blocks_used == 5
    assert engine.scheduler.kv_slots_unused == 12
    engine.add("b", 5, 2)  # two blocks, and one is free
    assert engine.steps(3) == ["a8", "a1", "a1 >a"]


def test_an_exhausted_chunk_admits_nobody():
    engine = Stepper(Sarathi(4, 4), blocks=20)
    engine.add("a", 8, 2)
    engine.add("b", 1, 1)
    assert engine.steps(3) == ["a4", "a4", "a1 b1 >a >b"]


def test_an_unfinished_prompt_gets_what_the_decodes_leave():
    engine = Stepper(Sarathi(2, 2), blocks=20)
    engine.add("a", 2, 9)
    engine.add("b", 3, 2)
    assert engine.steps(5) == ["a2", "a1 b1", "a1 b1", "a1 b1", "a1 b1 >b"]


def outgrown():
    """Two requests with two of the four blocks each; none is free."""
    engine = Stepper(Sarathi(16, 4), blocks=4)
    engine.add("a", 4, 8)
    engine.add("b", 4, 8, arrived=1)
    assert engine.steps(2) == ["a4 b4", "a1 b1"]
    assert engine.scheduler.num_free_blocks == 0
    return engine


def test_a_victim_may_be_back_in_the_step_that_preempted_it():
    engine = outgrown()
    # a's block has room, yet it wants a free one; its own two let b in again behind it
    assert engine.step() == "a1 b6 !b"
    assert engine.plan.recomputed == ((1, 5),)
    assert engine.plan.admitted == ((1, 0, True),)
    assert engine.steps(3) == ["a1 b7 !b", "a1 b8 !b", "a1 !b"]
    assert engine.steps(3) == ["a1", "a1 >a", "b9"]


def test_a_resumed_request_has_its_seniority_back():
    engine = Stepper(Sarathi(16, 4), blocks=6, victim=MostBlocks())
    engine.add("a", 8, 8)
    engine.add("b", 4, 8, arrived=1)
    engine.add("c", 4, 2, arrived=2)
    assert engine.steps(1) == ["a8 b4 c4"]
    # a takes its third block, b the sixth; for c the largest goes, in a step that it was in
    assert engine.step() == "b1 c1 >c !a"
    assert engine.running() == "b"
    assert engine.step() == "b1 a9"
    assert engine.step() == "a1 b1"


def test_with_chunks_unvisited_a_prompt_may_be_the_victim():
    engine = Stepper(Sarathi(4, 4), blocks=5)
    engine.add("a", 3, 8)
    engine.add("b", 13, 2, arrived=1)
    assert engine.steps(1) == ["a3 b1"]
    # a's second token wants a free block: all four of b's go, though it is in mid-prefill
    assert engine.step() == "a1 b3 !b"
    assert engine.plan.recomputed == ((1, 1),)


def test_an_unfinished_prompt_needs_no_slot():
    engine = Stepper(Sarathi(7, 4), blocks=7)
    engine.add("a", 3, 6)
    engine.add("b", 17, 2, arrived=1)
    assert engine.steps(3) == ["a3 b4", "a1 b6", "a1 b6"]
    assert engine.scheduler.num_free_blocks == 0


def test_the_tokens_of_a_victim_go_to_others():
    engine = Stepper(Sarathi(5, 4), blocks=6, victim=MostBlocks(), order=ShortestPrompt())
    engine.add("a", 10, 6)
    assert engine.steps(2) == ["a5", "a5"]
    engine.add("b", 8, 4, arrived=1)
    assert engine.steps(2) == ["a1 b4", "a1 b4"]
    engine.add("c", 12, 2, arrived=2)
    # a takes the last block; b wants one, and a, with four, gives up its token too
    assert engine.step() == "b1 c4 !a"


def test_what_could_never_come_back_is_refused():
    scheduler = Sarathi().start(setup(4, max_len=16))
    assert "> 12 tokens of KV cache" in scheduler.reject_reason(request(0, prompt=10, output=4))
    assert scheduler.reject_reason(request(0, prompt=10, output=3)) is None


def test_another_order_ranks_the_queue():
    engine = Stepper(Sarathi(8, 4), blocks=20, order=ShortestPrompt())
    engine.add("a", 8, 1)
    engine.add("b", 3, 1)
    assert engine.steps(2) == ["b3 a5 >b", "a3 >a"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sarathi(8, 9).start(setup(9)), "nearest: 9, or max_num_seqs=8"),
        (lambda: Sarathi(chunk_size=0), "chunk_size=0: must be 1 or more"),
        (lambda: Sarathi(max_num_seqs=True), "must be a whole number"),
    ],
)
def test_settings_that_cannot_be_are_named(make, message):
    with pytest.raises(ServesimError, match=message):
        make()


@some
@given(cases(profiles))
def test_everyone_is_served_and_no_decode_ever_stalls(case):
    def each_step(scheduler, plan):
        scheduled = {work.rid for work in plan.work}
        for state in scheduler._running:
            if state.known > state.request.prompt_tokens and not state.mid_prefill:
                assert state.request.rid in scheduled

    drive(case, each_step=each_step)


@some
@given(cases(profiles, gaps=GAPS_PS), TIMERS, CUTS)
def test_skipping_equals_stepping_bit_for_bit(case, timer, until_ps):
    assert_skipping_is_exact(case, timer, until_ps)
