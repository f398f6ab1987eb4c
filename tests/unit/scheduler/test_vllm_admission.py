"""The waiting loop: who is let in, with how many tokens, and who blocks whom."""

import pytest
from stepping import Stepper

from servesim.content import SharedPrefix


def test_mid_prefill_requests_count_against_max_num_seqs():
    engine = Stepper(max_num_seqs=1, max_num_batched_tokens=8)
    engine.add("long", 12, 2)
    engine.add("short", 2, 1)
    assert engine.steps(3) == ["long8", "long4", "long1"]
    assert engine.step().batch == "short2"


def test_admission_stops_when_the_token_budget_is_spent():
    engine = Stepper(max_num_batched_tokens=8, caching=False)
    engine.add("a", 6, 2)
    engine.add("b", 6, 2)
    engine.add("c", 1, 2)
    assert engine.step().batch == "a6 b2"
    assert engine.step().batch == "a1 b4 c1"


def test_long_prefill_threshold_spares_the_lone_request():
    engine = Stepper(long_prefill_token_threshold=4)
    engine.add("a", 10, 2)
    assert engine.step().batch == "a10"


def test_long_prefill_threshold_caps_everyone_in_company():
    engine = Stepper(long_prefill_token_threshold=4)
    engine.add("a", 10, 2)
    engine.add("b", 6, 2)
    assert engine.steps(3) == ["a4 b4", "a4 b2", "a2 b1"]


def test_without_chunking_a_prompt_that_does_not_fit_blocks_the_rest():
    engine = Stepper(enable_chunked_prefill=False, max_len=16, caching=False)
    engine.add("a", 10, 3)
    engine.add("b", 8, 2)  # 6 tokens of budget left: waits whole
    engine.add("c", 3, 2)  # would fit, must not overtake
    assert engine.steps(2) == ["a10", "a1 b8 c3"]


def test_the_whole_sequence_must_fit_at_admission():
    gated = Stepper(blocks=7, max_len=24, max_num_batched_tokens=8, caching=False)
    gated.add("a", 8, 4)
    gated.add("b", 20, 2)
    assert gated.steps(2) == ["a8", "a1"]  # b: 5 blocks, 3 or 4 are free


def test_without_the_gate_the_first_chunk_is_enough():
    engine = Stepper(
        blocks=7,
        max_len=24,
        max_num_batched_tokens=8,
        caching=False,
        scheduler_reserve_full_isl=False,
    )
    engine.add("a", 8, 4)
    engine.add("b", 20, 2)
    assert engine.steps(2) == ["a8", "a1 b7"]


def test_the_gate_counts_known_tokens_and_not_the_reply_to_come():
    engine = Stepper(blocks=5, max_len=16, caching=False)
    engine.add("a", 7, 9)
    engine.add("b", 7, 9)  # both fit now, though they will not to the end
    assert engine.step().batch == "a7 b7"


def test_watermark_holds_blocks_back_only_while_something_runs():
    # int(0.25 * 9) = 2 of 8 usable blocks stay free
    engine = Stepper(watermark=0.25, caching=False, max_num_batched_tokens=32)
    engine.add("a", 28, 3)  # 7 blocks: leaves one, but nothing runs yet
    assert engine.step().batch == "a28"
    fits = Stepper(watermark=0.25, caching=False, max_num_batched_tokens=32)
    fits.add("a", 12, 3)
    fits.add("b", 12, 3)
    assert fits.step().batch == "a12 b12"  # 3 + 3 + 2 spare
    waits = Stepper(watermark=0.25, caching=False, max_num_batched_tokens=32)
    waits.add("a", 12, 3)
    waits.add("b", 13, 3)
    assert waits.step().batch == "a12"  # 3 + 4 + 2 spare > 8


def test_cached_blocks_that_nobody_holds_cost_capacity():
    # 4 usable blocks; x leaves 2 of them cached. y holds 2, so z's 2 hits are all that is left:
    # taking them is free of prefill, not of memory, and its third block is not there.
    engine = Stepper(blocks=5, max_len=16, max_num_seqs=2)
    engine.add("x", 8, 1, content=SharedPrefix(0, 8))
    engine.run_out()
    engine.add("y", 7, 3)
    engine.add("z", 9, 2, content=SharedPrefix(0, 8))
    row = engine.step()
    assert row.batch == "y7"
    assert row.free == "2→2"


def test_nobody_is_admitted_in_a_step_that_preempts():
    engine = Stepper(blocks=7, max_num_seqs=3, max_len=24)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.steps(5)
    engine.add("c", 2, 1)
    row = engine.step()
    assert (row.batch, row.preempted) == ("a1", "b")  # two blocks are free, c needs one
    assert engine.step().batch == "a1"  # and now b, at the head, does not fit


def test_fcfs_puts_the_preempted_in_front_of_those_who_never_ran():
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.add("c", 8, 2)
    batches = [row.batch for row in engine.run_out()]
    assert next(batch for batch in batches if "c" in batch) == "b5 c8"


def test_the_latest_victim_is_the_first_to_return():
    engine = Stepper(blocks=7, caching=False, max_num_seqs=3, max_len=24)
    for name in "abc":
        engine.add(name, 5, 9)
    log = engine.run_out()
    assert [row.preempted for row in log if row.preempted] == ["c", "b"]
    assert [row.batch for row in log[8:11]] == ["a1", "b13", "c9"]


class TestPaddedAdmission:
    """With drafts, a one-token admission into a pure decode step becomes a verification."""

    def engine(self, **settings):
        return Stepper(
            blocks=17, **{"num_speculative_tokens": 2, "max_num_batched_tokens": 16, **settings}
        )

    def test_next_to_a_decode(self):
        engine = self.engine()
        engine.add("a", 4, 6)
        engine.step()
        engine.add("b", 1, 4)
        assert engine.step().batch == "a3 b3"
        assert engine.drafts() == "a2 b2"

    def test_not_in_an_empty_engine(self):
        engine = self.engine()
        engine.add("a", 1, 4)
        assert engine.step().batch == "a1"
        assert engine.drafts() == ""

    def test_not_next_to_a_prefill_chunk(self):
        engine = self.engine(max_num_batched_tokens=8)
        engine.add("a", 10, 4)
        engine.step()
        engine.add("b", 1, 4)
        assert engine.step().batch == "a2 b1"

    def test_alone_when_the_rest_is_cached(self):
        engine = self.engine()
        engine.add("a", 5, 1, content=SharedPrefix(0, 4))
        engine.run_out()
        engine.add("b", 5, 4, content=SharedPrefix(0, 4))
        assert engine.step().batch == "b3"

    def test_waits_when_the_verification_exceeds_the_budget(self):
        engine = self.engine(max_num_batched_tokens=5)
        engine.add("a", 4, 6)
        engine.step()
        engine.add("b", 1, 4)
        assert engine.step().batch == "a3"

    @pytest.mark.parametrize(("max_len", "batch"), [(16, "b1"), (17, "b4")])
    def test_not_beyond_max_model_len(self, max_len, batch):
        engine = self.engine(num_speculative_tokens=3, max_len=max_len)
        engine.add("a", 13, 1, content=SharedPrefix(0, 12))
        engine.run_out()
        engine.add("b", 13, 3, content=SharedPrefix(0, 12))
        assert engine.step().batch == batch  # 12 cached + 1 + 3 drafts + 1 sampled = 17

    def test_drafts_never_exceed_the_tokens_scheduled(self):
        engine = self.engine(num_speculative_tokens=4, long_prefill_token_threshold=2)
        engine.add("a", 2, 6)
        engine.step()
        engine.add("b", 1, 4)
        assert engine.step().batch == "a2 b2"
        assert engine.drafts() == "a1 b1"
