"""What a cache knows of one request's blocks."""

from collections.abc import Hashable
from typing import NamedTuple

from servesim.content import Content


class BlockTable:
    """The blocks one request holds, in the order of its tokens.

    Attributes:
        num_blocks: how many.
        blocks: their ids; where blocks have no names, those of the keyed ones.
        num_registered: full blocks that are cached.
        num_shareable: leading blocks that another request may have too.
        own_run: cached blocks given back by a preemption, as the pool knows them.
    """

    __slots__ = (
        "_content",
        "_keys",
        "_rid",
        "blocks",
        "num_blocks",
        "num_registered",
        "num_shareable",
        "own_run",
    )

    def __init__(self, rid: int, content: Content, block_size: int) -> None:
        self._rid, self._content = rid, content
        self._keys: list[Hashable] = []
        self.blocks: list[int] = []
        self.num_blocks = self.num_registered = 0
        self.num_shareable = content.shareable_blocks(block_size)
        self.own_run: int | None = None

    def keys(self, count: int, block_size: int) -> list[Hashable]:
        """Content keys of the first `count` full blocks (possibly more)."""
        known = len(self._keys)
        if known < count:
            self._keys += self._content.block_keys(self._rid, known, count, block_size)
        return self._keys


class Hits(NamedTuple):
    """Cached blocks of a waiting request: those others may hold too, and how many of its own."""

    shared: list[int]
    num_own: int

    @property
    def num_blocks(self) -> int:
        """Blocks in all."""
        return len(self.shared) + self.num_own


NO_HITS = Hits([], 0)
