import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim.content import SharedPrefix, Tokens, TraceBlocks, Unique
from servesim.errors import SettingError


def common(a, b):
    """Leading keys that two requests share."""
    equal = [x == y for x, y in zip(a, b, strict=True)]
    return equal.index(False) if False in equal else len(equal)


def test_unique_tokens_equal_only_themselves():
    first, second = (Unique().block_keys(rid, 0, 4, 16) for rid in (0, 1))
    assert common(first, first) == 4
    assert common(first, second) == 0


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (15, 0), (16, 1), (40, 2), (1000, 5)])
def test_a_prefix_is_shared_by_its_whole_blocks(tokens, blocks):
    a, b = (SharedPrefix(3, tokens).block_keys(rid, 0, 5, 16) for rid in (0, 1))
    assert common(a, b) == blocks
    assert common(a, SharedPrefix(4, tokens).block_keys(1, 0, 5, 16)) == 0


def test_prefixes_of_one_group_nest():
    long, short = SharedPrefix(3, 64), SharedPrefix(3, 40)
    assert common(long.block_keys(0, 0, 5, 16), short.block_keys(1, 0, 5, 16)) == 2


class TestTraceBlocks:
    """A trace with ids per 8 tokens, read by engines with other blocks."""

    a = TraceBlocks((10, 11, 12, 13), 8)
    b = TraceBlocks((10, 11, 12, 99), 8)

    def test_engine_block_equal(self):
        assert common(self.a.block_keys(0, 0, 5, 8), self.b.block_keys(1, 0, 5, 8)) == 3

    def test_engine_block_a_multiple_needs_the_last_id_of_each(self):
        # blocks of 16: (10, 11) agree, (12, 99) do not
        assert common(self.a.block_keys(0, 0, 3, 16), self.b.block_keys(1, 0, 3, 16)) == 1

    def test_engine_block_a_divisor_splits_every_id(self):
        keys_a, keys_b = self.a.block_keys(0, 0, 9, 4), self.b.block_keys(1, 0, 9, 4)
        assert common(keys_a, keys_b) == 6
        assert len(set(keys_a)) == 9

    def test_engine_block_neither_is_refused_with_the_nearest(self):
        with pytest.raises(SettingError, match=r"block_size=12: .*nearest: 8"):
            self.a.block_keys(0, 0, 1, 12)

    def test_blocks_beyond_the_ids_are_the_requests_own(self):
        same = TraceBlocks((10, 11, 12, 13), 8)
        for block_size, shared in ((8, 4), (16, 2), (4, 8)):
            keys = [c.block_keys(i, 0, 10, block_size) for i, c in enumerate((self.a, same))]
            assert common(*keys) == shared

    def test_ids_that_do_not_fill_the_last_big_block_share_nothing_of_it(self):
        odd = TraceBlocks((10, 11, 12), 8)
        assert common(odd.block_keys(0, 0, 2, 16), odd.block_keys(1, 0, 2, 16)) == 1

    def test_an_id_means_the_same_wherever_it_stands(self):
        # ids are chained hashes: a first block with id 11 is no prefix of one that ends in 11
        assert TraceBlocks((11,), 8).block_keys(0, 0, 1, 8) == self.a.block_keys(1, 1, 2, 8)


def test_token_keys_are_chained():
    a, b = Tokens((1, 2, 3, 4, 5, 6)), Tokens((9, 2, 3, 4, 5, 6))
    assert common(a.block_keys(0, 0, 3, 2), a.block_keys(1, 0, 3, 2)) == 3
    assert common(a.block_keys(0, 0, 3, 2), b.block_keys(1, 0, 3, 2)) == 0
    c = Tokens((1, 2, 3, 9))
    assert common(a.block_keys(0, 0, 2, 2), c.block_keys(1, 0, 2, 2)) == 1


def test_token_keys_end_where_the_tokens_end():
    a = Tokens((1, 2, 3, 4, 5))
    assert common(a.block_keys(0, 0, 4, 2), a.block_keys(1, 0, 4, 2)) == 2


CONTENTS = st.one_of(
    st.just(Unique()),
    st.builds(SharedPrefix, st.integers(0, 2), st.integers(0, 100)),
    st.builds(TraceBlocks, st.lists(st.integers(0, 9), max_size=8).map(tuple), st.just(8)),
    st.builds(Tokens, st.lists(st.integers(0, 3), max_size=60).map(tuple)),
)


@given(CONTENTS, st.sampled_from([4, 8, 16]), st.integers(0, 12), st.integers(0, 12))
def test_keys_do_not_depend_on_how_they_are_asked_for(content, block_size, cut, more):
    last = cut + more
    whole = content.block_keys(5, 0, last, block_size)
    assert len(whole) == last
    first, rest = (
        content.block_keys(5, 0, cut, block_size),
        content.block_keys(5, cut, last, block_size),
    )
    assert first + rest == whole
    assert all(isinstance(hash(key), int) for key in whole)
