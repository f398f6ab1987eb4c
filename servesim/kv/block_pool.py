"""The pool of KV blocks: the free queue in engine order, cached keys, reference counts.

Rules of vLLM (block_pool.py): block 0 is a null block that is never handed out; allocation takes
from the head of the free queue and strips the block's key, which is the eviction. A request's
blocks are released deepest first. Those with a key go to the tail, so that the least recently
released prefix is evicted first, its deepest block before the others. Those without one go to the
head since 0.32, and to the tail like all others up to 0.20.

Most blocks can be found again only by the request that filled them. They are kept in runs, one
item of the queue for all that a request gave back at once: freeing 80 blocks or taking 80 is a
slice and not 80 operations. Only blocks that other requests may hit carry a key and a count.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

from servesim.kv.keyed import KeyedBlocks
from servesim.kv.table import BlockTable, Hits


class BlockPool(KeyedBlocks):
    """Blocks 1 … num_gpu_blocks − 1, each free or held."""

    def __init__(self, num_gpu_blocks: int, unkeyed_to_head: bool = True) -> None:
        super().__init__(num_gpu_blocks)
        self._unkeyed_to_head = unkeyed_to_head
        # number of a run → its blocks in the order of their tokens; the last one goes first
        self._queue: OrderedDict[int, list[int]] = OrderedDict()
        self._num_runs = 0
        if self.num_free:
            self._append(list(range(num_gpu_blocks - 1, 0, -1)))

    def free_order(self) -> list[int]:
        """Block ids in the order in which they would be allocated."""
        return [block for run in self._queue.values() for block in reversed(run)]

    def take(self, count: int) -> list[int]:
        """Allocate `count` blocks from the head of the free queue; their cached keys are lost."""
        taken: list[int] = []
        queue = self._queue
        self.num_free -= count
        while count:
            number = next(iter(queue))
            run = queue[number]
            if len(run) > count:
                taken += run[: -count - 1 : -1]
                del run[-count:]
                return taken
            del queue[number]
            taken += run[::-1]
            count -= len(run)
            if run[0] in self._key:  # keyed blocks are runs of one
                self._forget(run[0])
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Take one more reference on keyed blocks."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._queue[self._run_of.pop(block)]
                self.num_free -= 1
            self._refs[block] += 1

    def register(self, block: int, key: Hashable) -> None:
        """Cache a full block, held by one request, under `key`."""
        self._remember(block, key)

    def release(self, blocks: Sequence[int], own: range = range(0)) -> int | None:
        """Drop one reference on each of a request's blocks, given in the order of its tokens.

        Args:
            blocks: what it holds.
            own: positions of the cached blocks that only this request can find again; blocks
                before them are keyed, blocks behind them hold no full block of tokens.

        Returns:
            The number under which `own_left` and `reclaim` know the own blocks, or None.
        """
        number = None
        if own:
            shared, rest = blocks[: own.start], list(blocks[own.stop :])
        else:
            shared = [b for b in blocks if b in self._key]
            rest = [b for b in blocks if b not in self._key]
        if rest:
            self._append(rest, to_head=self._unkeyed_to_head)
            self.num_free += len(rest)
        if own:
            number = self._append(list(blocks[own.start : own.stop]))
            self.num_free += len(own)
        for block in reversed(shared):
            self._refs[block] -= 1
            if not self._refs[block]:
                self._run_of[block] = self._append([block])
                self.num_free += 1
        return number

    def own_left(self, number: int) -> int:
        """How many of a run of own blocks are left; the first ones live longest."""
        return len(self._queue.get(number, ()))

    def reclaim(self, number: int) -> list[int]:
        """Hand the rest of a run of own blocks back to its request."""
        run = self._queue.pop(number)
        self.num_free -= len(run)
        return run

    def give(self, table: BlockTable, count: int) -> None:
        """`take` for a table."""
        table.blocks += self.take(count)
        table.num_blocks += count

    def take_over(self, table: BlockTable, hits: Hits) -> None:
        """`touch` and `reclaim` for an empty table."""
        self.touch(hits.shared)
        table.blocks += hits.shared
        if hits.num_own and table.own_run:
            table.blocks += self.reclaim(table.own_run)
        table.own_run = None
        table.num_blocks = len(table.blocks)

    def cache(self, table: BlockTable, position: int, key: Hashable) -> None:
        """`register` for a table."""
        self.register(table.blocks[position], key)

    def take_back(self, table: BlockTable, num_keyed: int, num_full: int) -> None:
        """`release` for a table."""
        table.own_run = self.release(table.blocks, range(num_keyed, num_full))
        table.blocks = []
        table.num_blocks = 0

    def _append(self, run: list[int], to_head: bool = False) -> int:
        self._num_runs += 1
        self._queue[self._num_runs] = run
        if to_head:
            self._queue.move_to_end(self._num_runs, last=False)
        return self._num_runs
