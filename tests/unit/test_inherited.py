"""What the turns of a session have in common, block by block and token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim.content import Inherited
from servesim.kv.token_runs import common


def shared_blocks(a, b, block_size, count=20):
    """Leading keys that (rid, content) a and b have in common."""
    keys = [content.block_keys(rid, 0, count, block_size) for rid, content in (a, b)]
    equal = [x == y for x, y in zip(*keys, strict=True)]
    return equal.index(False)


@pytest.fixture
def turns():
    """Turns 5, 6 and 7: the second begins with 20 tokens of the first, the third with 35."""
    first = Inherited.of(None, 5, 0, 20)
    second = Inherited.of(first, 6, 20, 35)
    return {5: first, 6: second, 7: Inherited.of(second, 7, 35, 0)}


def test_tokens_are_named_by_the_turn_that_had_them_first(turns):
    assert turns[6].spans == ((5, 20),)
    assert turns[7].spans == ((5, 20), (6, 35))
    # what a later turn forgets is not named
    assert Inherited.of(turns[7], 8, 12, 0).spans == ((5, 12),)
    assert Inherited.of(turns[7], 8, 35, 0).spans == ((5, 20), (6, 35))
    assert Inherited.of(turns[7], 8, 50, 0).spans == ((5, 20), (6, 35), (7, 50))


@pytest.mark.parametrize(("size", "blocks"), [(1, (20, 35, 20)), (4, (5, 8, 5)), (16, (1, 2, 1))])
def test_whole_blocks_are_shared(turns, size, blocks):
    pairs = ((5, 6), (6, 7), (5, 7))
    found = [shared_blocks((a, turns[a]), (b, turns[b]), size, 40) for a, b in pairs]
    assert tuple(found) == blocks


def test_those_blocks_may_be_had_by_others_and_no_more(turns):
    assert [turns[rid].shareable_blocks(4) for rid in (5, 6, 7)] == [5, 8, 8]
    assert Inherited(()).shareable_blocks(1) == 0


def test_tokens_are_runs_of_the_turns_they_come_from(turns):
    runs = turns[7].token_runs(7, 50)
    assert [(run.stream, run.first, run.num_tokens) for run in runs] == [
        (("own", 5), 0, 20),
        (("own", 6), 20, 15),
        (("own", 7), 35, 15),
    ]
    assert turns[7].token_runs(7, 12) == turns[5].token_runs(5, 12)


@given(st.data())
def test_a_chain_of_turns_agrees_with_a_copy_of_its_tokens(data):
    # the same chain with tokens written out, each by its own name
    contents, tokens, length = [], [], 60
    shared = [0, *(data.draw(st.integers(0, length)) for _ in range(5)), 0]
    for rid in range(6):
        contents.append(
            Inherited.of(contents[-1] if rid else None, rid, shared[rid], shared[rid + 1])
        )
        before = tokens[-1] if rid else []
        tokens.append([*before[: shared[rid]], *((rid, i) for i in range(shared[rid], length))])
    a, b, size = (
        data.draw(st.integers(0, 5)),
        data.draw(st.integers(0, 5)),
        data.draw(st.integers(1, 7)),
    )
    equal = next((i for i in range(length) if tokens[a][i] != tokens[b][i]), length)
    assert common(contents[a].token_runs(a, length), contents[b].token_runs(b, length)) == equal
    count = length // size
    keys = [contents[rid].block_keys(rid, 0, count, size) for rid in (a, b)]
    same = [x == y for x, y in zip(*keys, strict=True)]
    assert same == [i < equal // size for i in range(count)]
    part = data.draw(st.integers(0, count))
    assert contents[a].block_keys(a, part, count, size) == keys[0][part:]
    if a != b:
        assert equal // size <= contents[a].shareable_blocks(size)
