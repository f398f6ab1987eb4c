"""Blocks that other requests may hit: which keys are cached, and who holds their blocks."""

from collections.abc import Hashable


class KeyedBlocks:
    """The part of a pool that is the same whether blocks have names or not.

    Attributes:
        num_usable: blocks that there are, the null block not counted.
        num_free: blocks that can be allocated, cached ones included.
    """

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_usable = self.num_free = num_gpu_blocks - 1
        self._key: dict[int, Hashable] = {}
        self._refs: dict[int, int] = {}
        self._run_of: dict[int, int] = {}  # of keyed blocks that are free: place in the queue
        # Equal content is not deduplicated: a key may name several blocks, the oldest one serves.
        self._cached: dict[Hashable, dict[int, None]] = {}

    @property
    def num_used(self) -> int:
        """Blocks that some request holds."""
        return self.num_usable - self.num_free

    def find(self, key: Hashable) -> int | None:
        """The block cached under `key`, or None."""
        blocks = self._cached.get(key)
        return next(iter(blocks)) if blocks else None

    def is_free(self, block: int) -> bool:
        """Whether no request holds the keyed block."""
        return block in self._run_of

    def _remember(self, block: int, key: Hashable) -> None:
        """A full block, held by one request, is cached from now on."""
        self._key[block] = key
        self._refs[block] = 1
        self._cached.setdefault(key, {})[block] = None

    def _forget(self, block: int) -> None:
        """A free block is allocated anew."""
        key = self._key.pop(block)
        blocks = self._cached[key]
        del blocks[block], self._refs[block], self._run_of[block]
        if not blocks:
            del self._cached[key]
