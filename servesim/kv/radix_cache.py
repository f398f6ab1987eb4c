"""A KV pool whose full pages live in a radix tree once they are computed.

Every token slot is free, in the tree, or held by one request alone. A request holds the tail that
it has computed since its last `checkpoint`, and locks the tree's nodes that it stands on. Sizes
are tokens, always whole pages. Source: SGLang 0.5.23, mem_cache/unified_radix_cache.py
(`checkpoint_into_tree`), mem_cache/common.py (`release_kv_cache`), allocator/base.py.
"""

from servesim.content import Content
from servesim.kv.radix import Match, Node, RadixTree
from servesim.kv.token_runs import Runs, cut


class Row:
    """The tokens of one request and where their KV is.

    Attributes:
        runs: virtual tokens of the prompt and of the reply that will be sampled.
        prompt_tokens: prompt length.
        node: the node of the tree that it has locked.
        num_in_tree: leading tokens that are the tree's; the request owns the others.
        num_inserted: leading tokens that it has inserted since it was admitted.
    """

    __slots__ = ("node", "num_in_tree", "num_inserted", "prompt_tokens", "runs")

    def __init__(self, runs: Runs, prompt_tokens: int, root: Node) -> None:
        self.runs = runs
        self.prompt_tokens = prompt_tokens
        self.node = root
        self.num_in_tree = self.num_inserted = 0


class RadixCache:
    """Token slots in pages, and the tree of those that hold cached tokens.

    Attributes:
        capacity: slots in all.
        page_size: slots per page.
        enabled: whether anything is cached beyond its request.
        num_free: slots that hold nothing.
        tree: the cached tokens.
    """

    def __init__(
        self, capacity: int, page_size: int, enabled: bool, eviction_policy: str = "lru"
    ) -> None:
        self.capacity = self.num_free = capacity - capacity % page_size
        self.page_size = page_size
        self.enabled = enabled
        self.tree = RadixTree(page_size, eviction_policy)

    @property
    def num_available(self) -> int:
        """Slots that are free or can be made so."""
        return self.num_free + self.tree.num_evictable

    @property
    def num_held(self) -> int:
        """Slots that are requests' own or locked by them."""
        return self.capacity - self.num_available

    def row(self, rid: int, content: Content, prompt_tokens: int, most_tokens: int) -> Row:
        """A request that holds nothing yet and has `most_tokens` tokens at its end."""
        return Row(content.token_runs(rid, most_tokens), prompt_tokens, self.tree.root)

    def match(self, row: Row, num_tokens: int) -> Match:
        """The longest cached prefix of the request's first `num_tokens` tokens."""
        num_tokens -= num_tokens % self.page_size
        if not self.enabled or not num_tokens:
            return Match(0, self.tree.root)
        return self.tree.match(cut(row.runs, num_tokens)[0])

    def stand_on(self, row: Row, match: Match) -> None:
        """Lock what was found for the request; it starts from there."""
        self.tree.lock(match.node)
        row.node, row.num_in_tree = match.node, match.num_tokens

    def step_off(self, row: Row) -> None:
        """Undo `stand_on` for a request that has computed nothing since."""
        self.tree.unlock(row.node)
        row.node, row.num_in_tree = self.tree.root, 0

    def ceil(self, num_tokens: int) -> int:
        """In whole pages, rounded up."""
        return -(-num_tokens // self.page_size) * self.page_size

    def growth(self, num_computed: int, num_tokens: int) -> int:
        """Slots that a request needs to get from `num_computed` tokens to so many more."""
        return self.ceil(num_computed + num_tokens) - self.ceil(num_computed)

    def free_up(self, num_tokens: int) -> bool:
        """Evict until so many slots are free; whether they are."""
        if num_tokens > self.num_free:
            self.num_free += self.tree.evict(num_tokens - self.num_free)
        return num_tokens <= self.num_free

    def take(self, num_tokens: int) -> None:
        """Give free slots to requests."""
        self.num_free -= num_tokens

    def checkpoint(self, row: Row, num_tokens: int) -> None:
        """Move the full pages of the first `num_tokens` tokens, all computed, into the tree.

        The copy of what is there already is freed. A leaf that holds prompt and reply is split
        between them, so that the reply can be evicted alone.
        """
        if not self.enabled:
            return
        tree, full = self.tree, num_tokens - num_tokens % self.page_size
        known, node = tree.insert(cut(row.runs, full)[0], full, row.num_inserted)
        self.num_free += known - row.num_in_tree
        row.num_inserted = max(row.num_inserted, full)
        prompt = row.prompt_tokens - row.prompt_tokens % self.page_size
        if 0 < prompt < full:
            tree.insert(cut(row.runs, prompt)[0], prompt, prompt)
        tree.unlock(row.node)
        tree.lock(node)
        row.node, row.num_in_tree = node, full

    def release(self, row: Row, num_tokens: int, *, keep: bool) -> None:
        """Give back the slots of a request that has computed `num_tokens` tokens.

        Args:
            row: the request.
            num_tokens: computed tokens.
            keep: whether the tree keeps what is full, for others; if not, only what it has.
        """
        if keep:
            self.checkpoint(row, num_tokens)
        self.num_free += self.ceil(num_tokens) - row.num_in_tree
        self.step_off(row)
        row.num_inserted = 0
