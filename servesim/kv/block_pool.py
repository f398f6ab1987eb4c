"""The pool of KV blocks: reference counts, the free queue in engine order, and cached keys.

Rules of vLLM 0.33 (block_pool.py): block 0 is a null block that is never handed out; allocation
takes from the head of the free queue and strips the block's key, which is the eviction; released
blocks without a key go to the head, those with one to the tail, so that the least recently
released prefix is evicted first, its deepest block before the others.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable


class BlockPool:
    """Blocks 1 … num_gpu_blocks − 1, each free or referenced, each with a key or without."""

    def __init__(self, num_gpu_blocks: int) -> None:
        self.num_usable = num_gpu_blocks - 1
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_gpu_blocks))
        self._refs = [0] * num_gpu_blocks
        self._key: list[Hashable | None] = [None] * num_gpu_blocks
        # Equal content is not deduplicated: a key may name several blocks, the oldest one serves.
        self._cached: dict[Hashable, dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated, cached ones included."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that some request holds."""
        return self.num_usable - len(self._free)

    def free_order(self) -> list[int]:
        """Block ids in the order in which they would be allocated."""
        return list(self._free)

    def find(self, key: Hashable) -> int | None:
        """The block cached under `key`, or None."""
        blocks = self._cached.get(key)
        return next(iter(blocks)) if blocks else None

    def is_free(self, block: int) -> bool:
        """Whether no request holds `block`."""
        return self._refs[block] == 0

    def take(self, count: int) -> list[int]:
        """Allocate `count` blocks from the head of the free queue; their cached keys are lost."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            if self._key[block] is not None:
                self._forget(block)
            self._refs[block] = 1
            taken.append(block)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Take one more reference on cached blocks."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._free[block]
            self._refs[block] += 1

    def register(self, block: int, key: Hashable) -> None:
        """Cache a full block under `key`."""
        self._key[block] = key
        self._cached.setdefault(key, {})[block] = None

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference on each of a request's blocks, given in the order of its tokens."""
        keyless = []
        for block in reversed(list(blocks)):
            self._refs[block] -= 1
            if self._refs[block] == 0:
                if self._key[block] is None:
                    keyless.append(block)
                else:
                    self._free[block] = None
        for block in reversed(keyless):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._key[block]
        blocks = self._cached[key]
        del blocks[block]
        if not blocks:
            del self._cached[key]
        self._key[block] = None
