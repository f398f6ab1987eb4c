"""Blocks by request: prefix lookup, allocation, release (vLLM kv_cache_manager.py)."""

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from servesim.content import Content
from servesim.kv.table import NO_HITS, BlockTable, Hits


class Pool(Protocol):
    """Blocks of one cache: `BlockPool` with names, `CountedPool` without."""

    num_usable: int
    num_free: int

    @property
    def num_used(self) -> int:
        """Blocks that some request holds."""

    def find(self, key: Hashable) -> int | None:
        """The block cached under `key`, or None."""

    def is_free(self, block: int) -> bool:
        """Whether no request holds the keyed block."""

    def own_left(self, number: int) -> int:
        """How many of a run of own blocks are left; the first ones live longest."""

    def give(self, table: BlockTable, count: int) -> None:
        """Allocate from the head of the free queue; cached keys are lost."""

    def take_over(self, table: BlockTable, hits: Hits) -> None:
        """Give an empty table its hits."""

    def cache(self, table: BlockTable, position: int, key: Hashable) -> None:
        """Key the full block at `position`; positions come in order."""

    def take_back(self, table: BlockTable, num_keyed: int, num_full: int) -> None:
        """All of a table's blocks: first the keyed ones, then own full ones, then the others."""


ALL_BLOCKS = 2**62


class Need(NamedTuple):
    """What a waiting request asks of the cache to be admitted.

    Attributes:
        new_tokens: tokens to compute after the hits, drafts included.
        known_tokens: prompt and sampled tokens; only their blocks are ever cached.
        lookahead_tokens: further slots for a drafter.
        hits: cached blocks to take over.
        uncovered_tokens: tokens that count as computed although no hit holds them; 0 but for what
            vLLM 0.11 does to a victim that it had scheduled in the same step.
        full_sequence: whether all known tokens must fit now (`scheduler_reserve_full_isl`).
        spare_blocks: blocks that must stay free (watermark).
    """

    new_tokens: int
    known_tokens: int
    lookahead_tokens: int = 0
    hits: Hits = NO_HITS
    uncovered_tokens: int = 0
    full_sequence: bool = False
    spare_blocks: int = 0


class KVManager:
    """Hands blocks of one pool to requests."""

    def __init__(
        self,
        pool: Pool,
        block_size: int,
        max_model_len: int,
        prefix_caching: bool,
        drop_last_hit: bool = False,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self._max_model_len = max_model_len
        self.prefix_caching = prefix_caching
        self._drop_last_hit = drop_last_hit

    def table(self, rid: int, content: Content) -> BlockTable:
        """An empty table for one request."""
        table = BlockTable(rid, content, self.block_size)
        if not self.prefix_caching:
            table.num_shareable = 0
        elif self._drop_last_hit:
            # the dropped block stays in the queue beside the one computed anew
            table.num_shareable = ALL_BLOCKS
        return table

    def lookup(self, table: BlockTable, known_tokens: int) -> Hits:
        """Longest cached prefix in whole blocks; the last known token is left to compute.

        Where the drafter needs the hidden state before the last token (EAGLE, MTP), the last
        matched block is left to compute as well. Own blocks need no look-up: released behind them
        in the queue, the shared ones before them outlive them, and of the own ones the first live
        longest.
        """
        if not self.prefix_caching or not (table.num_shareable or table.own_run):
            return NO_HITS
        count = (known_tokens - 1) // self.block_size
        num_shareable = min(count, table.num_shareable)
        shared: list[int] = []
        if num_shareable:
            keys = table.keys(num_shareable, self.block_size)
            for i in range(num_shareable):
                block = self.pool.find(keys[i])
                if block is None:
                    break
                shared.append(block)
        if self._drop_last_hit:
            return Hits(shared[:-1], 0)
        if len(shared) < num_shareable:
            return Hits(shared, 0)
        return Hits(shared, self.pool.own_left(table.own_run) if table.own_run else 0)

    def admit(self, table: BlockTable, need: Need) -> bool:
        """Give a waiting request its hits and new blocks, or nothing at all and False."""
        missing = self._missing(need)
        if missing is None:
            return False
        hits = need.hits
        self.pool.take_over(table, hits)
        table.num_registered = hits.num_blocks
        self.pool.give(table, missing)
        computed = self._computed(need) + need.new_tokens
        self.register(table, min(computed, need.known_tokens))
        return True

    def admit_new(self, table: BlockTable, tokens: int, must_fit: int, spare_blocks: int) -> bool:
        """`admit` for a request without hits: `tokens` now, room for `must_fit` of them."""
        room = self.pool.num_free - spare_blocks
        missing = self.blocks_for(tokens)
        if missing > room or (must_fit > tokens and self.blocks_for(must_fit) > room):
            return False
        self.pool.give(table, missing)
        self.register(table, tokens)
        return True

    def _missing(self, need: Need) -> int | None:
        """New blocks for an admission, or None where they do not fit."""
        num_hits, pool = need.hits.num_blocks, self.pool
        # a hit that nobody holds leaves the free queue, so it costs capacity like a new block
        revived = sum(map(pool.is_free, need.hits.shared)) + need.hits.num_own
        room = pool.num_free - need.spare_blocks - revived
        if need.full_sequence and self.blocks_for(need.known_tokens) - num_hits > room:
            return None
        end = self._computed(need) + need.new_tokens + need.lookahead_tokens
        missing = max(0, self.blocks_for(end) - num_hits)
        return missing if missing <= room else None

    def _computed(self, need: Need) -> int:
        return need.hits.num_blocks * self.block_size + need.uncovered_tokens

    def extend(self, table: BlockTable, num_tokens: int, lookahead: int, known_tokens: int) -> bool:
        """Grow a running request to `num_tokens` computed tokens, or change nothing and False.

        Args:
            table: the request's blocks.
            num_tokens: tokens computed once the step has run, drafts included.
            lookahead: further slots for a drafter.
            known_tokens: prompt and sampled tokens; only their blocks are ever cached.
        """
        missing = self.blocks_for(num_tokens + lookahead) - table.num_blocks
        if missing > 0:
            if missing > self.pool.num_free:
                return False
            self.pool.give(table, missing)
        self.register(table, min(num_tokens, known_tokens))
        return True

    def register(self, table: BlockTable, num_tokens: int) -> None:
        """Cache the full blocks among the first `num_tokens` tokens.

        Called while scheduling, before the step has run: a request admitted later in the same
        pass may hit them, because a batch writes KV before attention reads it.
        """
        if not self.prefix_caching:
            return
        full, first = num_tokens // self.block_size, table.num_registered
        if full > first:
            if first < table.num_shareable:
                last = min(full, table.num_shareable)
                keys = table.keys(last, self.block_size)
                for i in range(first, last):
                    self.pool.cache(table, i, keys[i])
            table.num_registered = full

    def release(self, table: BlockTable) -> None:
        """Give all blocks back; cached ones stay findable until they are allocated anew."""
        full, shareable = table.num_registered, table.num_shareable
        self.pool.take_back(table, shareable if shareable < full else full, full)
        table.num_registered = 0

    def give_up(self, table: BlockTable, known_tokens: int) -> None:
        """`release` for a request that will look for its blocks again.

        A victim that had been scheduled in the same step may have filled the block of its last
        known token. It will compute that block anew beside the cached one, as a hit leaves a token
        to compute, so its blocks are no longer told apart by their order: they all get keys.
        """
        full = table.num_registered
        if full > (known_tokens - 1) // self.block_size:
            keys = table.keys(full, self.block_size)
            for i in range(min(table.num_shareable, full), full):
                self.pool.cache(table, i, keys[i])
            table.num_shareable = ALL_BLOCKS
        self.release(table)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens; there are no slots beyond `max_model_len`."""
        return -(-min(num_tokens, self._max_model_len) // self.block_size)
