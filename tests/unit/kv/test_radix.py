"""The radix tree and the pool above it, by hand and against plain lists of tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.content import SharedPrefix, Tokens, TraceBlocks, Unique
from servesim.kv.radix import RadixTree
from servesim.kv.radix_cache import RadixCache
from servesim.kv.token_runs import common, cut


def runs(tokens):
    ids = tuple(tokens)
    return Tokens(ids).token_runs(0, len(ids))


def leading(equal):
    """How many are true before the first that is not."""
    return [*equal, False].index(False)


def spell(key):
    """Runs of single letters' numbers as text."""
    return "".join(chr(run.first + i) for run in key for i in range(run.num_tokens))


class Texts:
    """A tree of texts, a token per letter; what is in it as `path:locks` of its leaves."""

    def __init__(self, page_size=1, policy="lru"):
        self.tree, self.page_size = RadixTree(page_size, policy), page_size

    def key(self, text):
        full = len(text) - len(text) % self.page_size
        return runs(map(ord, text[:full])), full

    def insert(self, text, inserted=0):
        key, full = self.key(text)
        return self.tree.insert(key, full, inserted)

    def match(self, text):
        return self.tree.match(self.key(text)[0])

    def edges(self):
        return sorted(spell(node.key) for node in self.tree.nodes())

    def cached(self):
        """Texts from the root to each leaf."""
        found = []
        for node in self.tree.nodes():
            if not node.children:
                text = ""
                while node.parent is not None:
                    text, node = spell(node.key) + text, node.parent
                found.append(text)
        return sorted(found)


class TestTree:
    def test_an_insertion_splits_where_texts_part(self):
        texts = Texts()
        assert texts.insert("hello").num_tokens == 0
        assert texts.insert("help").num_tokens == 3
        assert texts.edges() == ["hel", "lo", "p"]
        assert texts.tree.num_evictable == 6

    def test_a_match_splits_too_and_is_token_exact(self):
        texts = Texts()
        texts.insert("hello")
        match = texts.match("hexagon")
        assert match.num_tokens == 2
        assert spell(match.node.key) == "he"
        assert texts.edges() == ["he", "llo"]
        assert texts.match("zebra") == (0, texts.tree.root)

    def test_larger_pages_round_a_match_down(self):
        texts = Texts(page_size=4)
        texts.insert("abcdefghij")  # two pages; "ij" is none
        assert texts.cached() == ["abcdefgh"]
        assert texts.match("abcdefXX").num_tokens == 4
        assert texts.match("abXXefgh").num_tokens == 0

    def test_the_least_recently_used_leaf_goes_whole(self):
        texts = Texts()
        for text in ("aaaa", "bbbb", "cccc"):
            texts.insert(text)
        texts.match("aaaa")
        assert texts.tree.evict(1) == 4  # one token was asked for
        assert texts.cached() == ["aaaa", "cccc"]

    def test_a_parent_is_a_candidate_once_it_is_childless(self):
        texts = Texts()
        texts.insert("rootleft")
        texts.insert("rootright")
        texts.insert("zz")
        # the order of use: "root" and "left" at the split, "right", "zz"; "root" waits for both
        assert texts.tree.evict(1) == 4
        assert texts.cached() == ["rootright", "zz"]
        assert texts.tree.evict(6) == 9  # "right", then its parent, which is older than "zz"
        assert texts.cached() == ["zz"]

    def test_what_is_locked_stays_with_all_above_it(self):
        texts = Texts()
        texts.insert("abcd")
        texts.insert("abxy")
        node = texts.match("abcd").node
        texts.tree.lock(node)
        assert (texts.tree.num_locked, texts.tree.num_evictable) == (4, 2)
        assert texts.tree.evict(100) == 2
        assert texts.cached() == ["abcd"]
        texts.tree.unlock(node)
        assert texts.tree.evict(100) == 4
        assert texts.cached() == []

    def test_a_split_below_a_lock_locks_both_parts(self):
        texts = Texts()
        node = texts.insert("abcdef").node
        texts.tree.lock(node)
        texts.match("abcxyz")
        assert sorted((spell(n.key), n.locks) for n in texts.tree.nodes()) == [
            ("abc", 1),
            ("def", 1),
        ]
        texts.tree.unlock(node)
        assert texts.tree.num_evictable == 6

    def test_eviction_policies(self):
        gone = {}
        for policy in ("lru", "lfu", "fifo", "filo", "slru"):
            texts = Texts(policy=policy)
            texts.insert("aa")
            texts.insert("bb")
            texts.insert("bb")
            texts.insert("cc")
            texts.match("aa")
            texts.match("cc")
            texts.tree.evict(1)
            gone[policy] = ({"aa", "bb", "cc"} - set(texts.cached())).pop()
        # bb is the least recently used and the only one inserted twice; aa is the oldest
        assert gone == {"lru": "bb", "lfu": "aa", "fifo": "aa", "filo": "cc", "slru": "aa"}

    def test_depth_first_goes_where_more_wait(self):
        texts = Texts()
        for text in ("ax", "ay", "b"):
            texts.insert(text)
        waiting = ["b", "ax", "ay", "a", "ay"]
        order = texts.tree.depth_first([texts.match(text).node for text in waiting])
        assert [waiting[i] for i in order] == ["ay", "ay", "ax", "a", "b"]


texts = st.lists(st.text("ab", max_size=9), max_size=14)


@settings(max_examples=150, deadline=None)
@given(texts, st.text("ab", max_size=12), st.sampled_from([1, 2, 3]))
def test_a_match_is_the_longest_common_prefix_in_whole_pages(inserted, asked, page_size):
    tree = Texts(page_size)
    for text in inserted:
        tree.insert(text)

    def pages(text):
        whole = len(text) // page_size
        return [text[i * page_size : (i + 1) * page_size] for i in range(whole)]

    longest = 0
    for text in inserted:
        both = zip(pages(text), pages(asked), strict=False)
        equal = [one == other for one, other in both]
        longest = max(longest, leading(equal))
    assert tree.match(asked).num_tokens == longest * page_size
    prefixes = {tuple(pages(t)[:n]) for t in inserted for n in range(1, len(pages(t)) + 1)}
    assert tree.tree.num_evictable == len(prefixes) * page_size
    assert tree.tree.evict(10**6) == len(prefixes) * page_size
    assert tree.cached() == []


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 4), max_size=12))
def test_runs_compare_as_the_tokens_do(one, other):
    equal = [a == b for a, b in zip(one, other, strict=False)]
    assert common(runs(one), runs(other)) == leading(equal)
    for at in range(len(one) + 1):
        first, rest = cut(runs(one), at)
        assert sum(run.num_tokens for run in first) == at
        assert spell(first) + spell(rest) == spell(runs(one))


class TestTokenRuns:
    """Two requests share a position's token exactly where their contents are equal."""

    @staticmethod
    def shared(a, b, count=64):
        one, other = a.token_runs(0, count), b.token_runs(1, count)
        assert sum(r.num_tokens for r in one) == sum(r.num_tokens for r in other) == count
        return common(one, other)

    def test_unique(self):
        assert self.shared(Unique(), Unique()) == 0

    def test_a_prefix_to_the_token(self):
        assert self.shared(SharedPrefix(3, 17), SharedPrefix(3, 17)) == 17
        assert self.shared(SharedPrefix(3, 17), SharedPrefix(3, 40)) == 17
        assert self.shared(SharedPrefix(3, 17), SharedPrefix(4, 17)) == 0
        assert self.shared(SharedPrefix(3, 99), SharedPrefix(3, 99)) == 64

    def test_trace_blocks_part_at_their_boundaries(self):
        a, b = TraceBlocks((1, 2, 3), 16), TraceBlocks((1, 2, 9), 16)
        assert self.shared(a, b) == 32
        assert self.shared(a, a) == 48
        assert self.shared(a, a, 40) == 40

    def test_token_ids_merge_into_runs(self):
        assert Tokens((5, 6, 7, 1, 2)).token_runs(0, 4) == (("token", 5, 3), ("token", 1, 1))
        assert self.shared(Tokens((5, 6, 7)), Tokens((5, 6, 9))) == 2
        assert self.shared(Tokens((5, 6)), Tokens((5, 6))) == 2


class TestPool:
    """A pool of 20 slots; rows of token ids."""

    @staticmethod
    def row(pool, text, prompt):
        return pool.row(0, Tokens(tuple(map(ord, text))), prompt, len(text))

    def computed(self, pool, text, prompt):
        """A request that has found nothing and computed all of its tokens."""
        row = self.row(pool, text, prompt)
        pool.stand_on(row, pool.match(row, 0))
        pool.take(pool.ceil(len(text)))
        return row

    def test_the_newcomers_copy_is_freed(self):
        pool = RadixCache(20, 1, enabled=True)
        first, second = (self.computed(pool, "abcdef", 6) for _ in range(2))
        assert pool.num_free == 8
        pool.checkpoint(first, 6)
        assert (pool.num_free, pool.tree.num_locked) == (8, 6)
        pool.checkpoint(second, 6)
        assert (pool.num_free, pool.tree.num_locked) == (14, 6)

    def test_a_reply_can_be_evicted_without_its_prompt(self):
        pool = RadixCache(20, 1, enabled=True)
        pool.release(self.computed(pool, "promptREPLY", 6), 11, keep=True)
        assert (pool.num_free, pool.num_available, pool.num_held) == (9, 20, 0)
        assert pool.free_up(10)
        assert [spell(node.key) for node in pool.tree.nodes()] == ["prompt"]

    def test_a_retraction_keeps_only_what_the_tree_had(self):
        pool = RadixCache(20, 1, enabled=True)
        row = self.computed(pool, "promptRE", 6)
        pool.checkpoint(row, 6)
        assert (pool.num_free, pool.num_held) == (12, 8)
        pool.release(row, 8, keep=False)
        assert (pool.num_free, pool.tree.num_evictable, pool.num_held) == (14, 6, 0)

    def test_the_last_part_of_a_page_stays_the_requests_own(self):
        pool = RadixCache(20, 4, enabled=True)
        row = self.computed(pool, "abcdefghij", 10)
        assert pool.num_free == 8
        pool.checkpoint(row, 10)
        assert (row.num_in_tree, pool.tree.num_locked, pool.num_free) == (8, 8, 8)
        assert pool.growth(10, 2) == 0
        assert pool.growth(10, 3) == 4

    @pytest.mark.parametrize("keep", [True, False])
    def test_without_a_cache_everything_is_given_back(self, keep):
        pool = RadixCache(20, 1, enabled=False)
        pool.release(self.computed(pool, "abcdef", 6), 6, keep=keep)
        assert pool.num_free == 20
        assert pool.match(self.row(pool, "abcdef", 6), 5).num_tokens == 0

    def test_a_pool_is_a_whole_number_of_pages(self):
        assert RadixCache(23, 4, enabled=True).capacity == 20
