"""vLLM V0: prompts before decodes, victims at the front, swapping, chunks, evictions."""

import pytest
from paged_stepping import GIB, Stepper, setup, v0
from serving import request

from servesim.errors import ServesimError
from servesim.policies.order.priority import Priority
from servesim.policies.victim.fewest_generated import FewestGenerated
from servesim.policies.victim.last_admitted import LastAdmitted
from servesim.policies.victim.least_urgent import LeastUrgent
from servesim.policies.victim.most_blocks import MostBlocks
from servesim.scheduler.vllm.v0 import VllmV0


def test_decodes_stall_while_a_prompt_runs():
    engine = Stepper(v0(), blocks=20)
    engine.add("a", 4, 5)
    assert engine.steps(2) == ["a4", "a1"]
    engine.add("b", 8, 2)
    assert engine.steps(4) == ["b8", "a1 b1 >b", "a1", "a1 >a"]


def test_prompts_share_a_step_up_to_the_budget_and_the_seats():
    engine = Stepper(v0(max_tokens=32, max_seqs=3), blocks=40)
    for name, prompt in (("a", 10), ("b", 20), ("c", 3), ("d", 1)):
        engine.add(name, prompt, 2)
    # c would exceed 32 tokens and nobody overtakes it; then d finds no seat
    assert engine.steps(4) == ["a10 b20", "c3", "a1 b1 c1 >a >b >c", "d1"]


def test_a_prompt_leaves_the_watermark_free():
    engine = Stepper(v0(max_tokens=800), blocks=200, max_len=790)
    engine.add("a", 4 * 100, 9)
    engine.add("b", 4 * 99, 2)  # leaves one block of 200, and two must stay free
    engine.add("c", 4 * 98, 2)
    assert engine.steps(2) == ["a400", "a1"]
    assert engine.scheduler.num_free_blocks == 99


def ping_pong(**swap):
    """Two requests that outgrow four blocks: after two steps each holds two and none is free."""
    engine = Stepper(v0(**swap), blocks=4)
    engine.add("a", 4, 8)
    engine.add("b", 4, 8)
    assert engine.steps(2) == ["a4 b4", "a1 b1"]
    assert engine.scheduler.num_free_blocks == 0
    return engine


def test_a_victim_comes_back_at_once_and_is_a_victim_again():
    engine = ping_pong()
    # a's block has room, yet a decode wants a free one; b is back as a prompt as soon as it fits
    assert engine.steps(6) == ["a1 !b", "b6", "a1 !b", "b7", "a1 !b", "b8"]
    # a takes its third block, so b, with nine tokens, waits for three until a has ended
    assert engine.steps(3) == ["a1 !b", "a1", "a1 >a"]
    assert engine.steps(3) == ["b9", "b1", "b1 >b"]


def test_a_victim_is_the_head_of_the_queue():
    engine = ping_pong()
    engine.add("c", 1, 2, arrived=1)
    assert engine.steps(2) == ["a1 !b", "b6"]
    assert engine.plan.admitted == ((1, 0, True),)
    assert engine.plan.recomputed == ((1, 5),)


def test_a_swapped_victim_runs_again_without_a_prefill():
    engine = ping_pong(cpu_blocks=8)
    assert engine.step() == "a1 !b"
    assert engine.scheduler.swapped == (1,)
    assert engine.scheduler.num_free_cpu_blocks == 6
    assert (engine.scheduler.num_running, engine.scheduler.num_waiting) == (1, 1)
    # swapped in behind a's token and with its own, into both free blocks
    assert engine.step() == "a1 b1"
    assert engine.plan.admitted == ((1, 0, True),)
    assert engine.plan.recomputed == ()
    assert engine.scheduler.num_free_cpu_blocks == 8
    assert engine.steps(2) == ["a1 !b", "a1"]


def test_no_prompt_is_admitted_while_somebody_is_swapped_out():
    engine = ping_pong(cpu_blocks=8)
    engine.add("c", 1, 2, arrived=1)
    assert engine.steps(4) == ["a1 !b", "a1 b1", "a1 !b", "a1"]
    # c would fit into the free block; b needs two
    assert engine.scheduler.num_free_blocks == 1
    assert engine.steps(4) == ["a1", "a1 >a", "b1", "c1"]


def test_where_the_swap_space_is_full_a_victim_is_recomputed():
    engine = ping_pong(cpu_blocks=1)
    assert engine.steps(2) == ["a1 !b", "b6"]
    assert engine.scheduler.num_free_cpu_blocks == 1


def test_chunks_fill_up_the_decodes_budget():
    engine = Stepper(v0(max_tokens=8, chunked=True), blocks=20)
    engine.add("a", 5, 4)
    assert engine.step() == "a5"
    engine.add("b", 14, 2)
    # as the engine lists a batch: prefills before decodes
    assert engine.steps(3) == ["b7 a1", "b7 a1", "a1 b1 >a >b"]


def test_with_chunks_a_step_that_preempts_still_admits():
    engine = Stepper(v0(max_tokens=8, chunked=True), blocks=4)
    engine.add("a", 4, 8)
    engine.add("b", 4, 8)
    assert engine.steps(2) == ["a4 b4", "a1 b1"]
    engine.add("c", 3, 2)
    assert engine.steps(1) == ["c3 a1 !b"]
    # b, at the front again, needs two blocks and there is one
    assert engine.scheduler.num_free_blocks == 1


def swapped_in_mid_prefill(prompt):
    """A step of seven tokens; in the third one a takes the last block and b finds no slot."""
    engine = Stepper(v0(max_tokens=7, chunked=True, cpu_blocks=99), blocks=7)
    engine.add("a", 3, 6)
    engine.add("b", prompt, 2)
    assert engine.steps(3) == ["a3 b4", "b6 a1", "a1 !b"]
    return engine


def test_the_rest_of_a_swapped_prompt_is_not_cut():
    engine = swapped_in_mid_prefill(17)
    assert engine.scheduler.swapped == (1,)
    # seven tokens are left of it, and there are six beside a's
    assert engine.steps(4) == ["a1", "a1", "a1 >a", "b7"]


def test_the_rest_of_a_prompt_that_would_never_come_back_is_recomputed():
    engine = swapped_in_mid_prefill(18)
    assert engine.scheduler.swapped == ()
    assert engine.step() == "b6 a1"
    assert engine.plan.recomputed == ((1, 6),)


def test_a_prompt_whose_last_block_is_full_needs_no_slot():
    engine = Stepper(v0(max_tokens=7, chunked=True), blocks=7)
    engine.add("a", 3, 6)
    engine.add("b", 20, 2)
    assert engine.steps(3) == ["a3 b4", "b6 a1", "b6 a1"]
    assert engine.scheduler.num_free_blocks == 0
    assert engine.step() == "a1 !b"


def test_a_more_urgent_head_evicts_the_least_urgent():
    engine = Stepper(v0(max_seqs=2), blocks=20, order=Priority())
    engine.add("low", 4, 9, priority=5)
    engine.add("mid", 4, 9, priority=3)
    # admitted by urgency, and sorted by it in every step of decodes
    assert engine.steps(2) == ["mid4 low4", "mid1 low1"]
    engine.add("top", 4, 2, arrived=9)
    assert engine.steps(3) == ["mid1 !low", "top4", "top1 mid1 >top"]
    assert engine.step() == "low6"


def test_equals_evict_nobody():
    engine = Stepper(v0(max_seqs=1), blocks=20, order=Priority())
    engine.add("a", 4, 4, priority=1)
    engine.step()
    engine.add("b", 4, 2, priority=1, arrived=1)
    assert engine.steps(4) == ["a1", "a1", "a1 >a", "b4"]


def crowded(victim):
    """Three requests in six blocks; the first to run lacks one in the third step."""
    engine = Stepper(v0(), blocks=6, victim=victim)
    engine.add("a", 4, 9, priority=1)
    engine.add("b", 7, 9, priority=9, arrived=1)
    engine.step()
    engine.add("c", 4, 4, priority=0, arrived=2)
    assert engine.steps(2) == ["c4", "a1 b1 c1"]
    assert engine.scheduler.num_free_blocks == 0
    return engine


@pytest.mark.parametrize(
    ("victim", "row"),
    [
        (None, "a1 b1 !c"),  # c gives two blocks, b takes its third
        (LastAdmitted(), "a1 b1 !c"),
        (FewestGenerated(), "a1 b1 !c"),
        (LeastUrgent(), "a1 c1 !b"),
        (MostBlocks(), "a1 b1 !c"),  # two each: the last admitted
    ],
)
def test_the_victim_is_the_policys(victim, row):
    assert crowded(victim).step() == row


def test_a_victim_that_had_its_token_gives_it_back():
    engine = Stepper(v0(), blocks=5, victim=MostBlocks())
    engine.add("a", 9, 7)
    engine.add("b", 4, 4)
    assert engine.steps(1) == ["a9 b4"]
    # a goes on in its third block; b takes the fifth
    assert engine.step() == "a1 b1"
    assert engine.step() == "b1 !a"
    engine = Stepper(v0(), blocks=6, victim=MostBlocks())
    engine.add("a", 12, 7)
    engine.add("b", 8, 4)
    assert engine.step() == "a12 b8"
    # a takes the sixth block; b lacks one, a is the largest and its token is not run
    assert engine.step() == "b1 !a"
    assert engine.scheduler.num_free_blocks == 3


def test_what_could_never_come_back_is_refused():
    scheduler = v0(max_tokens=800).start(setup(200, max_len=796))
    assert "> 792 tokens of KV cache" in scheduler.reject_reason(request(0, prompt=700, output=94))
    assert scheduler.reject_reason(request(0, prompt=700, output=93)) is None
    assert "max_model_len 796" in scheduler.reject_reason(request(0, prompt=790, output=7))
    # without a watermark, one block to go on with
    scheduler = v0().start(setup(4, max_len=16))
    assert "> 12 tokens" in scheduler.reject_reason(request(0, prompt=10, output=4))


def test_limits_default_as_in_the_release():
    machine = setup(2000, max_len=4096)
    assert VllmV0().max_tokens(machine) == 4096
    assert VllmV0().max_tokens(setup(2000, max_len=100)) == 2048
    assert VllmV0(enable_chunked_prefill=True).max_tokens(machine) == 2048
    assert VllmV0(preemption_mode="swap").num_cpu_blocks(machine) == GIB
    text = VllmV0(preemption_mode="swap").describe(machine)
    assert "no prefix cache" in text
    assert "copies cost no time here" in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VllmV0(8, 9).start(setup(9)), "nearest: 9, or max_num_seqs=8"),
        (lambda: VllmV0(31, 9).start(setup(9, max_len=32)), "nearest: 32"),
        (lambda: VllmV0(preemption_mode="swop"), "did you mean 'swap'?"),
        (lambda: VllmV0(swap_space_gib=-1), "must be 0 or more"),
        (lambda: VllmV0(max_num_batched_tokens=0), "must be 1 or more"),
        (
            lambda: VllmV0(preemption_mode="swap").start(setup(9, order=Priority())),
            "nearest: recompute",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(make, message):
    with pytest.raises(ServesimError, match=message):
        make()
