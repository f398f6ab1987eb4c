"""Blocks by request: prefix lookup, allocation, release (vLLM kv_cache_manager.py, 0.33)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from servesim.content import Content
from servesim.kv.block_pool import BlockPool


class BlockTable:
    """The blocks one request holds, in the order of its tokens."""

    __slots__ = ("_content", "_keys", "_rid", "blocks", "num_registered")

    def __init__(self, rid: int, content: Content) -> None:
        self._rid, self._content = rid, content
        self._keys: list[Hashable] = []
        self.blocks: list[int] = []
        self.num_registered = 0

    def keys(self, count: int, block_size: int) -> list[Hashable]:
        """Content keys of the first `count` full blocks (possibly more)."""
        known = len(self._keys)
        if known < count:
            self._keys += self._content.block_keys(self._rid, known, count, block_size)
        return self._keys


@dataclass(frozen=True, slots=True)
class Need:
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
    hits: Sequence[int] = ()
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

    def lookup(self, table: BlockTable, known_tokens: int) -> list[int]:
        """Longest cached prefix in whole blocks; the last known token is left to compute."""
        hits: list[int] = []
        if not self._prefix_caching:
            return hits
        count = (known_tokens - 1) // self.block_size
        keys = table.keys(count, self.block_size)
        for i in range(count):
            block = self.pool.find(keys[i])
            if block is None:
                break
            hits.append(block)
        return hits

    def admit(self, table: BlockTable, need: Need) -> bool:
        """Give a waiting request its hits and new blocks, or nothing at all and False."""
        pool, num_hits = self.pool, len(need.hits)
        # a hit that nobody holds leaves the free queue, so it costs capacity like a new block
        revived = sum(pool.is_free(b) for b in need.hits)
        room = pool.num_free - need.spare_blocks - revived
        if need.full_sequence:
            whole = self._blocks_for(need.known_tokens)
            if whole - num_hits > room:
                return False
        computed = num_hits * self.block_size + need.new_tokens
        missing = max(0, self._blocks_for(computed + need.lookahead_tokens) - num_hits)
        if missing > room:
            return False
        pool.touch(need.hits)
        table.blocks.extend(need.hits)
        table.num_registered = num_hits
        table.blocks.extend(pool.take(missing))
        self.register(table, min(computed, need.known_tokens))
        return True

    def extend(self, table: BlockTable, num_tokens: int, lookahead: int, known_tokens: int) -> bool:
        """Grow a running request to `num_tokens` computed tokens, or change nothing and False.

        Args:
            table: the request's blocks.
            num_tokens: tokens computed once the step has run, drafts included.
            lookahead: further slots for a drafter.
            known_tokens: prompt and sampled tokens; only their blocks are ever cached.
        """
        missing = self._blocks_for(num_tokens + lookahead) - len(table.blocks)
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
        full = num_tokens // self.block_size
        if full > table.num_registered:
            keys = table.keys(full, self.block_size)
            for i in range(table.num_registered, full):
                self.pool.register(table.blocks[i], keys[i])
            table.num_registered = full

    def release(self, table: BlockTable) -> None:
        """Give all blocks back; cached ones stay findable until they are allocated anew."""
        self.pool.release(table.blocks)
        table.blocks = []
        table.num_registered = 0

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-min(num_tokens, self._max_model_len) // self.block_size)
