from servesim.content import SharedPrefix, Unique
from servesim.kv.block_pool import BlockPool
from servesim.kv.manager import KVManager, Need
from servesim.kv.table import BlockTable


def manager(*, blocks=9, max_len=64, caching=True):
    return KVManager(BlockPool(blocks), 4, max_len, caching)


def admit(kv, table, tokens, **need):
    hits = kv.lookup(table, tokens)
    new = tokens - hits.num_blocks * kv.block_size
    return kv.admit(table, Need(new_tokens=new, known_tokens=tokens, hits=hits, **need))


def test_admission_takes_the_blocks_of_all_tokens_and_registers_the_full_ones():
    kv, a = manager(), BlockTable(0, SharedPrefix(0, 10), 4)
    assert admit(kv, a, 10)
    assert (a.blocks, a.num_registered) == ([1, 2, 3], 2)
    assert kv.lookup(BlockTable(1, SharedPrefix(0, 10), 4), 10).shared == [1, 2]


def test_lookup_stops_at_the_first_miss_and_before_the_last_known_token():
    kv, a = manager(), BlockTable(0, SharedPrefix(0, 12), 4)
    admit(kv, a, 12)
    same = BlockTable(1, SharedPrefix(0, 12), 4)
    assert [kv.lookup(same, known).num_blocks for known in (1, 4, 5, 8, 9, 12, 13, 20)] == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    kv.release(a)
    assert kv.pool.free_order() == [4, 5, 6, 7, 8, 3, 2, 1]
    kv.pool.take(6)  # evicts a's last block
    assert kv.lookup(same, 13).shared == [1, 2]


def test_lookup_changes_nothing():
    kv, a = manager(), BlockTable(0, SharedPrefix(0, 12), 4)
    admit(kv, a, 12)
    kv.release(a)
    before = kv.pool.free_order()
    kv.lookup(BlockTable(1, SharedPrefix(0, 12), 4), 12)
    assert kv.pool.free_order() == before


def test_nothing_is_found_or_kept_without_prefix_caching():
    kv, a = manager(caching=False), BlockTable(0, SharedPrefix(0, 8), 4)
    admit(kv, a, 8)
    assert kv.lookup(BlockTable(1, SharedPrefix(0, 8), 4), 8).num_blocks == 0
    kv.release(a)
    assert kv.pool.free_order() == [2, 1, 3, 4, 5, 6, 7, 8]  # unhashed: to the head


def test_admission_is_all_or_nothing():
    kv, a = manager(blocks=4), BlockTable(0, Unique(), 4)
    assert not admit(kv, a, 13)
    assert (a.blocks, kv.pool.free_order()) == ([], [1, 2, 3])


def test_a_revived_hit_costs_a_block_and_a_shared_one_does_not():
    kv, a = manager(blocks=5), BlockTable(0, SharedPrefix(0, 8), 4)
    admit(kv, a, 8)
    shared = BlockTable(1, SharedPrefix(0, 8), 4)
    assert admit(kv, shared, 16)  # 2 hits held by a, 2 new blocks of the 2 free
    kv.release(shared)
    kv.release(a)
    blocker = BlockTable(2, Unique(), 4)
    assert admit(kv, blocker, 4)
    revived = BlockTable(3, SharedPrefix(0, 8), 4)
    assert not admit(kv, revived, 16)  # 2 hits + 2 new > 3 free
    assert admit(kv, revived, 12)
    assert kv.pool.num_free == 0


def test_full_sequence_counts_tokens_beyond_this_chunk():
    kv = manager(blocks=4)
    need = Need(new_tokens=4, known_tokens=16)
    assert not kv.admit(BlockTable(0, Unique(), 4), Need(4, 16, full_sequence=True))
    assert kv.admit(BlockTable(1, Unique(), 4), need)


def test_spare_blocks_stay_free():
    kv = manager(blocks=4)
    assert not kv.admit(BlockTable(0, Unique(), 4), Need(8, 8, spare_blocks=2))
    assert kv.admit(BlockTable(0, Unique(), 4), Need(8, 8, spare_blocks=1))


def test_lookahead_takes_slots_that_are_never_registered():
    kv, a = manager(), BlockTable(0, Unique(), 4)
    assert kv.admit(a, Need(new_tokens=7, known_tokens=7, lookahead_tokens=2))
    assert (len(a.blocks), a.num_registered) == (3, 1)


def test_extend_grows_by_whole_blocks():
    kv, a = manager(blocks=4), BlockTable(0, Unique(), 4)
    admit(kv, a, 7)
    assert kv.extend(a, 8, 0, 8)
    assert (len(a.blocks), a.num_registered) == (2, 2)
    assert kv.extend(a, 9, 0, 9)
    assert len(a.blocks) == 3
    assert not kv.extend(a, 13, 0, 13)
    assert (len(a.blocks), a.num_registered) == (3, 2)


def test_extend_never_registers_drafts():
    kv, a = manager(), BlockTable(0, Unique(), 4)
    admit(kv, a, 6)
    assert kv.extend(a, 8, 0, 7)  # the eighth token is a draft
    assert a.num_registered == 1


def test_slots_end_at_max_model_len():
    kv, a = manager(max_len=8), BlockTable(0, Unique(), 4)
    admit(kv, a, 6)
    assert kv.extend(a, 8, 4, 8)
    assert len(a.blocks) == 2


def test_two_requests_of_one_pass_share_what_the_first_has_registered():
    kv = manager()
    first, second = BlockTable(0, SharedPrefix(7, 8), 4), BlockTable(1, SharedPrefix(7, 8), 4)
    admit(kv, first, 9)
    admit(kv, second, 9)
    assert first.blocks[:2] == second.blocks[:2]
    assert first.blocks[2] != second.blocks[2]


def test_own_tokens_are_found_again_after_release():
    kv, a = manager(), BlockTable(0, Unique(), 4)
    admit(kv, a, 9)
    kv.release(a)
    assert (a.blocks, a.num_registered) == ([], 0)
    assert kv.lookup(a, 13).num_own == 2
    assert kv.lookup(BlockTable(1, Unique(), 4), 13).num_blocks == 0


def test_a_dropped_hit_is_left_to_compute_and_stays_cached():
    kv = KVManager(BlockPool(9), 4, 64, prefix_caching=True, drop_last_hit=True)
    a, b = (kv.table(rid, SharedPrefix(0, 12)) for rid in (0, 1))
    admit(kv, a, 13)
    assert kv.lookup(b, 13).shared == [1, 2]  # 1, 2 and 3 match
    assert kv.lookup(b, 8).shared == []  # one block at most may match, and is dropped
    kv.release(a)
    assert admit(kv, b, 13)
    assert b.blocks == [1, 2, 4, 5]
    kv.release(b)
    assert kv.lookup(b, 17).shared == [1, 2]  # 3 and 4 hold the same tokens


def test_a_dropped_hit_may_be_one_of_its_own_blocks():
    kv = KVManager(BlockPool(9), 4, 64, prefix_caching=True, drop_last_hit=True)
    a = kv.table(0, Unique())
    admit(kv, a, 13)
    kv.give_up(a, 13)
    assert kv.lookup(a, 13).shared == [1, 2]


def test_tokens_without_a_hit_that_count_as_computed_take_blocks():
    kv, a = manager(), BlockTable(0, Unique(), 4)
    assert kv.admit(a, Need(new_tokens=8, known_tokens=9, uncovered_tokens=1))
    assert (len(a.blocks), a.num_registered) == (3, 2)
