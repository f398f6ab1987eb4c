"""Pages of a KV cache that are hashed when full and evicted all at once.

Rules of transformers 5.23.0 (`generation/continuous_batching/cache.py`, `cache_allocators/`) for
a model whose layers all have full attention: there a sector is one block, and a block is one
page of every layer, so that one count of pages says it all. No decision depends on which page a
request holds, so pages have no names: a page that others may share is known by its content key,
all others are counted.
"""

from collections.abc import Hashable

from servesim.content import Content
from servesim.kv.table import BlockTable


class PageCache:
    """Pages held by requests, cached pages that nobody holds, free pages.

    A full page gets its hash after the forward pass that filled it. If a page with that hash is
    there already, the request adopts it and gives its own one back. Cached pages do not count as
    free: they cannot be allocated before `evict` has thrown all of them away.

    Attributes:
        num_pages: pages that requests can hold.
        num_free: pages that can be allocated now.
    """

    def __init__(self, num_pages: int, page_size: int, share_prefixes: bool) -> None:
        self.num_pages = self.num_free = num_pages
        self._page_size = page_size
        self._share = share_prefixes
        self._holders: dict[Hashable, int] = {}  # of hashed pages that others may ask for
        self._unheld: dict[Hashable, None] = {}  # those without a holder; a set in order
        self._own_unheld = 0  # hashed pages without a holder that nobody will ask for again

    @property
    def num_cached(self) -> int:
        """Pages that no request holds and that are kept for their content."""
        return len(self._unheld) + self._own_unheld

    @property
    def num_held(self) -> int:
        """Pages that requests hold, a shared one counted once."""
        return self.num_pages - self.num_free - self.num_cached

    def table(self, rid: int, content: Content) -> BlockTable:
        """An empty table for one request."""
        table = BlockTable(rid, content, self._page_size)
        if not self._share:
            table.num_shareable = 0
        return table

    def match(self, table: BlockTable, known_tokens: int) -> int:
        """Give an empty table its longest cached prefix in whole pages; how many they are.

        The last known token is left to compute.
        """
        count = min((known_tokens - 1) // self._page_size, table.num_shareable)
        hits = 0
        if count:
            keys = table.keys(count, self._page_size)
            while hits < count and keys[hits] in self._holders:
                self._hold(keys[hits])
                hits += 1
        table.num_blocks = table.num_registered = hits
        return hits

    def missing(self, table: BlockTable, num_tokens: int) -> int:
        """Pages that a table lacks to hold so many tokens."""
        return max(0, -(-num_tokens // self._page_size) - table.num_blocks)

    def extend(self, table: BlockTable, num_tokens: int) -> bool:
        """Grow a table to `num_tokens`, or change nothing and False."""
        missing = self.missing(table, num_tokens)
        if missing > self.num_free:
            return False
        self.num_free -= missing
        table.num_blocks += missing
        return True

    def complete(self, table: BlockTable, num_tokens: int) -> bool:
        """Hash the full pages among the first `num_tokens` tokens.

        Returns:
            Whether that was of a page that others may ask for.
        """
        full, first = num_tokens // self._page_size, table.num_registered
        if not self._share or full <= first:
            return False
        table.num_registered = full
        last = min(full, table.num_shareable)
        if first >= last:
            return False
        for key in table.keys(last, self._page_size)[first:last]:
            if key in self._holders:
                self._hold(key)
                self.num_free += 1  # its own copy
            else:
                self._holders[key] = 1
        return True

    def steps_unshared(self, table: BlockTable, computed: int) -> int | None:
        """Decode steps before a page that others may ask for is full; None if there is none."""
        if table.num_registered >= table.num_shareable:
            return None
        return self._page_size - 1 - computed % self._page_size

    def release(self, table: BlockTable, keep: bool) -> None:
        """Give all pages back; with `keep`, hashed ones that nobody else holds stay cached."""
        hashed = table.num_registered
        num_keyed = min(hashed, table.num_shareable)
        num_own = hashed - num_keyed
        if num_keyed:
            for key in table.keys(num_keyed, self._page_size)[:num_keyed]:
                self._let_go(key, keep)
        if keep:
            self._own_unheld += num_own
        else:
            self.num_free += num_own
        self.num_free += table.num_blocks - hashed
        table.num_blocks = table.num_registered = 0

    def evict(self) -> bool:
        """Throw away every cached page; whether there was one."""
        evicted = self.num_cached
        for key in self._unheld:
            del self._holders[key]
        self._unheld.clear()
        self._own_unheld = 0
        self.num_free += evicted
        return evicted > 0

    def _hold(self, key: Hashable) -> None:
        self._unheld.pop(key, None)
        self._holders[key] += 1

    def _let_go(self, key: Hashable, keep: bool) -> None:
        self._holders[key] -= 1
        if self._holders[key]:
            return
        if keep:
            self._unheld[key] = None
        else:
            del self._holders[key]
            self.num_free += 1
