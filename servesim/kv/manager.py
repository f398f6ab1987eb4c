"""Blocks by request: prefix lookup, allocation, release (vLLM kv_cache_manager.py, 0.33)."""

from collections.abc import Hashable
from typing import NamedTuple

from servesim.content import Content
from servesim.kv.block_pool import BlockPool


class BlockTable:
    """The blocks one request holds, in the order of its tokens.

    Attributes:
        blocks: block ids.
        num_registered: full blocks that are cached.
        num_shareable: leading blocks that another request may have too.
        own_run: cached blocks given back by a preemption, as the pool knows them.
    """

    __slots__ = (
        "_content",
        "_keys",
        "_rid",
        "blocks",
        "num_registered",
        "num_shareable",
        "own_run",
    )

    def __init__(self, rid: int, content: Content, block_size: int) -> None:
        self._rid, self._content = rid, content
        self._keys: list[Hashable] = []
        self.blocks: list[int] = []
        self.num_registered = 0
        self.num_shareable = content.shareable_blocks(block_size)
        self.own_run: int | None = None

    def keys(self, count: int, block_size: int) -> list[Hashable]:
        """Content keys of the first `count` full blocks (possibly more)."""
        known = len(self._keys)
        if known < count:
            self._keys += self._content.block_keys(self._rid, known, count, block_size)
        return self._keys


class Hits(NamedTuple):
    """Cached blocks of a waiting request: first those that others may hold too, then its own."""

    shared: list[int]
    own: list[int]

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self.shared) + len(self.own)


NO_HITS = Hits([], [])


class Need(NamedTuple):
    """What a waiting request asks of the cache to be admitted.

    Attributes:
        new_tokens: tokens to compute after the hits, drafts included.
        known_tokens: prompt and sampled tokens; only their blocks are ever cached.
        lookahead_tokens: further slots for a drafter.
        hits: cached blocks to take over.
        full_sequence: whether all known tokens must fit now (`scheduler_reserve_full_isl`).
        spare_blocks: blocks that must stay free (watermark).
    """

    new_tokens: int
    known_tokens: int
    lookahead_tokens: int = 0
    hits: Hits = NO_HITS
    full_sequence: bool = False
    spare_blocks: int = 0


class KVManager:
    """Hands blocks of one pool to requests."""

    def __init__(
        self, num_gpu_blocks: int, block_size: int, max_model_len: int, prefix_caching: bool
    ) -> None:
        self.pool = BlockPool(num_gpu_blocks)
        self.block_size = block_size
        self._max_model_len = max_model_len
        self._prefix_caching = prefix_caching

    def table(self, rid: int, content: Content) -> BlockTable:
        """An empty table for one request."""
        table = BlockTable(rid, content, self.block_size)
        if not self._prefix_caching:
            table.num_shareable = 0
        return table

    def lookup(self, table: BlockTable, known_tokens: int) -> Hits:
        """Longest cached prefix in whole blocks; the last known token is left to compute.

        Own blocks need no look-up: released behind them in the queue, the shared ones before them
        outlive them, and of the own ones the first live longest.
        """
        if not self._prefix_caching or not (table.num_shareable or table.own_run):
            return NO_HITS
        count = (known_tokens - 1) // self.block_size
        num_shareable = min(count, table.num_shareable)
        shared: list[int] = []
        if num_shareable:
            keys = table.keys(num_shareable, self.block_size)
            for i in range(num_shareable):
                block = self.pool.find(keys[i])
                if block is None:
                    return Hits(shared, [])
                shared.append(block)
        own = self.pool.own_run(table.own_run) if table.own_run else []
        return Hits(shared, own)

    def fits(self, need: Need) -> bool:
        """Whether a waiting request would get its blocks now."""
        return self._missing(need) is not None

    def admit(self, table: BlockTable, need: Need) -> bool:
        """Give a waiting request its hits and new blocks, or nothing at all and False."""
        missing = self._missing(need)
        if missing is None:
            return False
        pool, hits = self.pool, need.hits
        if hits.shared:
            pool.touch(hits.shared)
            table.blocks.extend(hits.shared)
        if hits.own and table.own_run:
            table.blocks.extend(pool.reclaim(table.own_run))
        table.own_run = None
        table.num_registered = hits.num_blocks
        table.blocks.extend(pool.take(missing))
        computed = hits.num_blocks * self.block_size + need.new_tokens
        self.register(table, min(computed, need.known_tokens))
        return True

    def _missing(self, need: Need) -> int | None:
        """New blocks for an admission, or None where they do not fit."""
        num_hits, pool = need.hits.num_blocks, self.pool
        # a hit that nobody holds leaves the free queue, so it costs capacity like a new block
        revived = sum(map(pool.is_free, need.hits.shared)) + len(need.hits.own)
        room = pool.num_free - need.spare_blocks - revived
        if need.full_sequence and self.blocks_for(need.known_tokens) - num_hits > room:
            return None
        end = num_hits * self.block_size + need.new_tokens + need.lookahead_tokens
        missing = max(0, self.blocks_for(end) - num_hits)
        return missing if missing <= room else None

    def extend(self, table: BlockTable, num_tokens: int, lookahead: int, known_tokens: int) -> bool:
        """Grow a running request to `num_tokens` computed tokens, or change nothing and False.

        Args:
            table: the request's blocks.
            num_tokens: tokens computed once the step has run, drafts included.
            lookahead: further slots for a drafter.
            known_tokens: prompt and sampled tokens; only their blocks are ever cached.
        """
        missing = self.blocks_for(num_tokens + lookahead) - len(table.blocks)
        if missing > 0:
            if missing > self.pool.num_free:
                return False
            table.blocks.extend(self.pool.take(missing))
        self.register(table, min(num_tokens, known_tokens))
        return True

    def register(self, table: BlockTable, num_tokens: int) -> None:
        """Cache the full blocks among the first `num_tokens` tokens.

        Called while scheduling, before the step has run: a request admitted later in the same
        pass may hit them, because a batch writes KV before attention reads it.
        """
        if not self._prefix_caching:
            return
        full, first = num_tokens // self.block_size, table.num_registered
        if full > first:
            if first < table.num_shareable:
                last = min(full, table.num_shareable)
                keys = table.keys(last, self.block_size)
                for i in range(first, last):
                    self.pool.register(table.blocks[i], keys[i])
            table.num_registered = full

    def release(self, table: BlockTable) -> None:
        """Give all blocks back; cached ones stay findable until they are allocated anew."""
        full = table.num_registered
        own = range(min(table.num_shareable, full), full)
        table.own_run = self.pool.release(table.blocks, own)
        table.blocks = []
        table.num_registered = 0

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens; there are no slots beyond `max_model_len`."""
        return -(-min(num_tokens, self._max_model_len) // self.block_size)
