from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from servesim.kv.block_pool import BlockPool


def test_block_zero_is_never_handed_out():
    pool = BlockPool(4)
    assert pool.num_usable == pool.num_free == 3
    assert pool.take(3) == [1, 2, 3]
    assert (pool.num_free, pool.num_used) == (0, 3)


def test_blocks_without_a_key_return_to_the_head_tail_block_first():
    pool = BlockPool(7)
    held = pool.take(3)
    pool.release(held)
    assert pool.free_order() == [3, 2, 1, 4, 5, 6]


def test_blocks_with_a_key_return_to_the_tail_deepest_first():
    pool = BlockPool(7)
    held = pool.take(3)
    for block, key in zip(held, "xyz", strict=True):
        pool.register(block, key)
    pool.release(held)
    assert pool.free_order() == [4, 5, 6, 3, 2, 1]


def test_full_blocks_are_kept_and_the_partial_one_goes_first():
    pool = BlockPool(6)
    held = pool.take(3)
    pool.register(1, "x")
    pool.register(2, "y")
    pool.release(held)
    assert pool.free_order() == [3, 4, 5, 2, 1]


def test_up_to_0_20_all_blocks_go_to_the_tail_deepest_first():
    pool = BlockPool(8, unkeyed_to_head=False)
    held = pool.take(4)
    pool.register(1, "x")
    pool.release(held, own=range(1, 3))
    assert pool.free_order() == [5, 6, 7, 4, 3, 2, 1]
    assert (pool.num_free, pool.own_left(pool.release(pool.take(1), range(1)))) == (7, 1)


def test_allocation_is_the_eviction():
    pool = BlockPool(3)
    pool.register(pool.take(1)[0], "x")
    pool.release([1])
    assert pool.free_order() == [2, 1]
    assert pool.find("x") == 1
    assert pool.take(1) == [2]
    assert pool.find("x") == 1
    assert pool.take(1) == [1]
    assert pool.find("x") is None


def test_a_touched_block_leaves_the_queue_and_re_enters_at_the_tail():
    pool = BlockPool(4)
    pool.register(pool.take(1)[0], "x")
    pool.release([1])
    pool.register(pool.take(1)[0], "y")
    pool.release([2])
    assert pool.free_order() == [3, 1, 2]
    assert pool.is_free(1)
    pool.touch([1])
    assert not pool.is_free(1)
    assert pool.free_order() == [3, 2]
    pool.release([1])
    assert pool.free_order() == [3, 2, 1]


def test_a_shared_block_is_freed_by_its_last_owner():
    pool = BlockPool(3)
    pool.register(pool.take(1)[0], "x")
    pool.touch([1])
    pool.release([1])
    assert pool.num_used == 1
    pool.release([1])
    assert pool.num_used == 0


def test_equal_content_is_not_merged_and_the_older_block_serves():
    pool = BlockPool(4)
    first, second = pool.take(2)
    pool.register(first, "x")
    pool.register(second, "x")
    assert pool.find("x") == first
    pool.release([first])
    pool.take(2)  # the free one, then `first`
    assert pool.find("x") == second


class PoolMachine(RuleBasedStateMachine):
    """The pool against plain bookkeeping: who holds what, and which key a block carries."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(8)
        self.owners: list[list[int]] = []
        self.keys: dict[int, int] = {}
        self.next_key = 0

    @rule(count=st.integers(0, 7))
    def take(self, count):
        if count <= self.pool.num_free:
            expected = self.pool.free_order()[:count]
            blocks = self.pool.take(count)
            assert blocks == expected
            for block in blocks:
                self.keys.pop(block, None)
            self.owners.append(blocks)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), fresh=st.booleans())
    def register(self, data, fresh):
        blocks = data.draw(st.sampled_from(self.owners))
        bare = [block for block in blocks if block not in self.keys]
        if bare:
            self.next_key += fresh
            self.pool.register(bare[0], self.next_key)
            self.keys[bare[0]] = self.next_key

    @rule(key=st.integers(0, 5))
    def share(self, key):
        block = self.pool.find(key)
        assert (block is None) == (key not in self.keys.values())
        if block is not None:
            assert self.keys[block] == key
            self.pool.touch([block])
            self.owners.append([block])

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data):
        index = data.draw(st.integers(0, len(self.owners) - 1))
        self.pool.release(self.owners.pop(index))

    @invariant()
    def conserved(self):
        held = {block for blocks in self.owners for block in blocks}
        free = self.pool.free_order()
        assert sorted([*free, *held]) == list(range(1, 8))
        assert self.pool.num_free == len(free)
        assert self.pool.num_used == len(held)
        assert all(self.pool.is_free(block) for block in free if block in self.keys)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
