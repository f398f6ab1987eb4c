"""Small runs worked out by hand from vLLM 0.33's rules; the recorded ones are in conformance."""

from stepping import Row, Stepper

from servesim.content import SharedPrefix
from servesim.policies.order.priority import Priority
from servesim.scheduler.base import PrefixStats


def test_a_prefill_is_chunked_around_a_decode():
    engine = Stepper(caching=False, max_num_batched_tokens=8)
    engine.add("a", 5, 4)
    assert engine.step() == Row("a5", emitted="a1", free="6→6")
    engine.add("b", 14, 3)
    assert engine.step() == Row("a1 b7", emitted="a1", free="4→4")
    assert engine.step() == Row("a1 b7", emitted="a1 b1", free="2→2")
    assert engine.step() == Row("a1 b1", emitted="a1 b1", finished="a", free="2→4")
    assert engine.step() == Row("b1", emitted="b1", finished="b", free="4→8")
    assert engine.scheduler.free_order() == [6, 5, 4, 3, 2, 1, 7, 8]


def test_b_preempted_request_resumes_on_its_cached_blocks():
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    assert engine.step() == Row("a8 b8", emitted="a1 b1", free="2→2")
    for _ in range(4):
        assert engine.step() == Row("a1 b1", emitted="a1 b1", free="0→0")
    assert engine.step() == Row("a1", preempted="b", emitted="a1", free="2→2")
    # b has 13 known tokens = 4 blocks, 2 of them cached but free: 4 > 2, so it waits
    for _ in range(2):
        assert engine.step() == Row("a1", emitted="a1", free="2→2")
    assert engine.step() == Row("a1", emitted="a1", finished="a", free="2→6")
    assert engine.step() == Row("b5", emitted="b1", free="2→2")
    assert engine.cached["b"] == 8
    # 12 tokens had KV, 8 came back from the cache: 4 are computed a second time, 1 for the first
    assert engine.recomputed == {"b": 4}
    assert engine.plan.admitted[0].resumed
    assert [row.finished for row in engine.run_out()] == ["", "", "b"]
    assert engine.scheduler.free_order() == [2, 1, 5, 6, 4, 3]


def test_c_full_hit_recomputes_the_last_block():
    engine = Stepper(blocks=13)
    same = SharedPrefix(0, 12)
    engine.add("a", 12, 2, content=same)
    engine.run_out()
    engine.add("b", 12, 2, content=same)
    engine.add("c", 13, 2, content=same)
    assert engine.step() == Row("b4 c1", emitted="b1 c1", free="7→7")
    assert engine.cached == {"a": 0, "b": 8, "c": 12}
    assert engine.scheduler.prefix_stats == PrefixStats(queries=12 + 12 + 13, hits=8 + 12)


def test_c2_second_of_two_simultaneous_prompts_hits_the_first():
    engine = Stepper(blocks=13, max_num_batched_tokens=32)
    engine.add("a", 12, 2, content=SharedPrefix(0, 12))
    engine.add("b", 12, 2, content=SharedPrefix(0, 12))
    assert engine.step().batch == "a12 b4"
    assert engine.cached == {"a": 0, "b": 8}


def test_e_drafts_take_tokens_slots_and_budget():
    engine = Stepper(blocks=13, caching=False, num_speculative_tokens=2, num_lookahead_tokens=2)
    engine.add("a", 6, 8)
    engine.add("b", 3, 6)
    # lookahead: a holds ceil(8 / 4), b ceil(5 / 4) blocks from its admission on
    assert engine.step() == Row("a6 b3", emitted="a1 b1", free="8→8")
    assert engine.step({"a": 2, "b": 1}) == Row("a3 b3", emitted="a3 b2", free="7→7")
    assert engine.drafts() == "a2 b2"
    assert engine.step({"a": 0, "b": 1}) == Row("a3 b3", emitted="a1 b2", free="5→5")
    assert engine.step({"a": 1}) == Row("a3 b3", emitted="a2 b1", finished="b", free="5→8")
    # two more drafts are accepted, but max_tokens leaves room for one token
    assert engine.step({"a": 2}) == Row("a3", emitted="a1", finished="a", free="7→12")


def test_f_priority_never_preempts_for_a_waiting_request():
    engine = Stepper(blocks=7, caching=False, max_num_seqs=3, max_len=24, order=Priority())
    engine.add("lo", 8, 8, priority=5)
    engine.add("hi", 8, 8, priority=0)
    assert engine.step().batch == "hi8 lo8"
    engine.add("mid", 4, 3, priority=2, arrived_s=1)
    assert engine.steps(4) == ["hi1 lo1"] * 4
    assert engine.step()[:2] == ("hi1", "lo")  # lo is its own victim; nobody is admitted
    assert engine.step().batch == "hi1 mid4"
    assert engine.step()[:4] == ("hi1 mid1", "", "hi1 mid1", "hi")
    assert engine.step().batch == "mid1 lo13"  # prompt and five sampled tokens, caching off
    assert engine.recomputed == {"lo": 12}
    assert [row.finished for row in engine.run_out()] == ["", "lo"]


def test_g_a_big_head_of_line_blocks_a_small_request():
    engine = Stepper(caching=False)
    engine.add("a", 16, 6)
    engine.step()
    engine.add("big", 20, 2)
    engine.add("small", 3, 2)
    # 3 blocks are free: small would fit, big's 20 tokens do not
    rows = [engine.step() for _ in range(5)]
    assert [row.batch for row in rows] == ["a1"] * 5
    assert rows[0].free == "3→3"
    assert rows[-1].finished == "a"
    assert engine.steps(2) == ["big16", "big4 small3"]
