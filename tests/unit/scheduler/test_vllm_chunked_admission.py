"""A prompt is admitted by its first chunk: what that costs where memory does not hold the rest."""

import pytest
from stepping import Stepper


def engine_with_two_free_blocks(budget, *, caching):
    """Five blocks of four tokens, three of them held by a reply; a prompt of three comes."""
    engine = Stepper(
        blocks=6,
        max_len=24,
        max_num_seqs=2,
        max_num_batched_tokens=budget,
        release="0.11",
        caching=caching,
    )
    engine.add("a", 8, 5)
    engine.steps(2)
    engine.add("b", 12, 2)
    return engine


def test_a_budget_below_the_prompt_admits_it_again_and_again():
    engine = engine_with_two_free_blocks(8, caching=False)
    # seven of b's tokens take two blocks, the third is not there: b is the victim, and comes again
    assert [engine.step()[:2] for _ in range(3)] == [("a1 b7", ""), ("a1", "b"), ("a1 b7", "")]
    engine.run_out()
    assert engine.recomputed == {"b": 7}


@pytest.mark.parametrize("caching", [False, True])
def test_a_budget_that_takes_the_prompt_lets_it_wait(caching):
    engine = engine_with_two_free_blocks(24, caching=caching)
    assert [engine.step().batch for _ in range(4)] == ["a1", "a1", "a1", "b12"]
    engine.run_out()
    assert engine.recomputed == {}


def test_a_prefix_cache_keeps_what_was_computed():
    engine = engine_with_two_free_blocks(8, caching=True)
    engine.run_out()
    assert engine.recomputed == {"b": 3}  # of seven tokens, a whole block is found again
