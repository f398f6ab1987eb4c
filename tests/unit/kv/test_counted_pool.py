"""Blocks without names behave as blocks with names do."""

from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.content import SharedPrefix, Unique
from servesim.kv.block_pool import BlockPool
from servesim.kv.counted import CountedPool
from servesim.kv.manager import KVManager, Need

BLOCKS, BLOCK_SIZE = 14, 4


def need(kv, table, tokens):
    hits = kv.lookup(table, tokens)
    new = tokens - hits.num_blocks * BLOCK_SIZE
    return Need(new_tokens=new, known_tokens=tokens, hits=hits, full_sequence=True)


def state(kv, tables):
    """All that a scheduler can see."""
    held = [(t.num_blocks, t.num_registered) for t in tables]
    hits = [kv.lookup(t, 40).num_blocks for t in tables if not t.num_blocks]
    return kv.pool.num_free, kv.pool.num_used, held, hits


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([Unique(), SharedPrefix(0, 8), SharedPrefix(0, 18)]), min_size=2),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("aer"), st.integers(1, 30)), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_both_pools_give_the_same_to_the_same_requests(contents, actions, caching, to_head):
    contents = contents[:6]
    pools = BlockPool(BLOCKS, to_head), CountedPool(BLOCKS, to_head)
    pair = [KVManager(pool, BLOCK_SIZE, 64, caching) for pool in pools]
    tables = [[kv.table(rid, c) for rid, c in enumerate(contents)] for kv in pair]
    tokens = [0] * len(contents)
    for who, action, amount in actions:
        who %= len(contents)
        if action == "a":
            amount = max(amount, tokens[who] + 1)  # whoever comes back has sampled since
        results = []
        for kv, mine in zip(pair, tables, strict=True):
            table = mine[who]
            if action == "a" and not table.num_blocks:
                results.append(kv.admit(table, need(kv, table, amount)))
            elif action == "e" and table.num_blocks:
                results.append(kv.extend(table, tokens[who] + amount, 0, tokens[who] + amount))
            elif action == "r" and table.num_blocks:
                kv.release(table)
        assert results[:1] == results[1:]
        if results and results[0]:
            tokens[who] = amount if action == "a" else tokens[who] + amount
        assert state(pair[0], tables[0]) == state(pair[1], tables[1])
