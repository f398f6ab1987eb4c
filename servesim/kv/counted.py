"""The pool of KV blocks without names for them: how many, in what order, and which keys.

No decision of an engine depends on which physical block a request holds. It depends on how many
are free, on the order in which cached ones are lost, and on which keys are there. So the free
queue here is a sequence of counts, and only a block that other requests may hit has an identity.
`BlockPool` is the same thing with names, as the real engine's traces show them.
"""

from collections import OrderedDict
from collections.abc import Hashable

from servesim.kv.keyed import KeyedBlocks
from servesim.kv.table import BlockTable, Hits


class CountedPool(KeyedBlocks):
    """Free blocks in engine order, cached keys, reference counts; see `BlockPool`.

    Attributes:
        owed: blocks that have been taken and not yet left the queue. They do before anyone looks
            at it or adds to it; until then `take` is two additions.
    """

    def __init__(self, num_gpu_blocks: int, unkeyed_to_head: bool = True) -> None:
        super().__init__(num_gpu_blocks)
        self._unkeyed_to_head = unkeyed_to_head
        # The free queue from its head: blocks that are not cached, what is left of the run that
        # is being used up, and further runs: number → its blocks, the deepest first; −id for the
        # one block of a key.
        self._not_cached = self.num_free
        self._opened = self._left = self.owed = 0
        self._queue: OrderedDict[int, int] = OrderedDict()
        self._num_runs = self._num_keyed = 0

    def own_left(self, number: int) -> int:
        """How many of a run of own blocks are left; the first ones live longest."""
        self._settle()
        return self._left if number == self._opened else self._queue.get(number, 0)

    def find(self, key: Hashable) -> int | None:
        """The block cached under `key`, or None."""
        self._settle()
        return super().find(key)

    def is_free(self, block: int) -> bool:
        """Whether no request holds the keyed block."""
        self._settle()
        return super().is_free(block)

    def take(self, count: int) -> None:
        """Allocate from the head of the free queue; cached keys are lost."""
        self.num_free -= count
        self.owed += count

    def _settle(self) -> None:
        """Let the blocks that are owed leave the queue."""
        count = self.owed
        if not count:
            return
        self.owed = 0
        count -= self._not_cached
        if count <= 0:
            self._not_cached = -count
            return
        self._not_cached = 0
        left, queue = self._left, self._queue
        while count > left:
            count -= left
            self._opened, left = queue.popitem(last=False)
            if left < 0:
                self._forget(-left)
                left = 1
        self._left = left - count

    def give(self, table: BlockTable, count: int) -> None:
        """`take` for a table."""
        if count:
            self.take(count)
            table.num_blocks += count

    def take_over(self, table: BlockTable, hits: Hits) -> None:
        """Give an empty table its hits."""
        self._settle()
        for block in hits.shared:
            if self._refs[block] == 0:
                del self._queue[self._run_of.pop(block)]
                self.num_free -= 1
            self._refs[block] += 1
        if hits.num_own and table.own_run:
            self.num_free -= hits.num_own
            if table.own_run == self._opened:
                self._left = 0
            else:
                del self._queue[table.own_run]
        table.blocks = list(hits.shared)
        table.own_run = None
        table.num_blocks = hits.num_blocks

    def cache(self, table: BlockTable, position: int, key: Hashable) -> None:
        """A full block gets a key, and with it an identity; positions come in order."""
        self._num_keyed += 1
        self._remember(self._num_keyed, key)
        table.blocks.append(self._num_keyed)

    def take_back(self, table: BlockTable, num_keyed: int, num_full: int) -> None:
        """All of a table's blocks, as `BlockPool.release` does."""
        self._settle()
        num_own, rest = num_full - num_keyed, table.num_blocks - num_full
        if self._unkeyed_to_head:
            self._not_cached += rest
        elif rest:
            self._append(rest)
        table.own_run = self._append(num_own) if num_own else None
        self.num_free += num_own + rest
        if num_keyed:
            for block in reversed(table.blocks):
                self._refs[block] -= 1
                if not self._refs[block]:
                    self.num_free += 1
                    self._run_of[block] = self._append(-block)
            table.blocks = []
        table.num_blocks = 0

    def take_back_own(self, num_full: int, rest: int) -> None:
        """`take_back` of blocks without keys, of a request that will not look for them again."""
        self._settle()
        if self._unkeyed_to_head:
            self._not_cached += rest
        elif rest:
            self._append(rest)
        if num_full:
            self._append(num_full)
        self.num_free += num_full + rest

    def _append(self, run: int) -> int:
        self._num_runs += 1
        self._queue[self._num_runs] = run
        return self._num_runs
