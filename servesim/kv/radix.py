"""A radix tree of cached tokens, as SGLang's prefix cache is one.

Every edge holds a run of tokens, a whole number of pages. A match that ends inside an edge splits
it there. Requests lock the path to the node they stand on; what is locked by nobody can be
evicted, a whole leaf at a time. Source: SGLang 0.5.23, mem_cache/unified_cache/
unified_tree_core.py and components/full.py, the default cache of models with full attention.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from servesim.kv.token_runs import Runs, common, cut, head

Rank = tuple[int, ...]


class Node:
    """The tokens of one edge, and what hangs below them.

    Attributes:
        key: the tokens.
        num_tokens: how many.
        parent: None for the root and for what has been evicted.
        children: by their first page.
        locks: requests that stand on this node or below it.
        stamp: when it was used last; the larger, the later.
        created: stamp of its creation.
        hits: requests that have inserted it.
    """

    __slots__ = (
        "children",
        "created",
        "hits",
        "key",
        "locks",
        "num_tokens",
        "offered",
        "parent",
        "stamp",
    )

    def __init__(self, key: Runs, num_tokens: int, parent: "Node | None", stamp: int) -> None:
        self.key = key
        self.num_tokens = num_tokens
        self.parent = parent
        self.children: dict[Runs, Node] = {}
        self.locks = self.hits = 0
        self.stamp = self.created = stamp
        self.offered = False  # whether the heap of victims has an entry for it


# Which leaf goes first: the one of the smallest rank. No rank ever sinks, so that a heap entry
# made earlier is at worst too early.
EVICTION_POLICIES: dict[str, Callable[[Node], Rank]] = {
    "lru": lambda node: (node.stamp,),
    "lfu": lambda node: (node.hits, node.stamp),
    "fifo": lambda node: (node.created, node.stamp),
    "filo": lambda node: (-node.created, node.stamp),
    "slru": lambda node: (int(node.hits >= 2), node.stamp),
}


class Match(NamedTuple):
    """Leading tokens that are cached, and the node that they end with."""

    num_tokens: int
    node: Node


class RadixTree:
    """Cached token sequences.

    Attributes:
        root: of the tree; holds no token.
        num_evictable: tokens in nodes that nobody locks.
        num_locked: tokens in the others.
    """

    def __init__(self, page_size: int = 1, eviction_policy: str = "lru") -> None:
        self._page_size = page_size
        self._rank = EVICTION_POLICIES[eviction_policy]
        self._clock = 0
        self._victims: list[tuple[Rank, Node]] = []
        self.root = Node((), 0, None, 0)
        self.num_evictable = self.num_locked = 0

    def match(self, key: Runs) -> Match:
        """The longest cached prefix of `key`; its nodes have been used now."""
        node, matched, rest = self.root, 0, key
        path = []
        while rest:
            child = self._child(node, rest)
            if child is None:
                break
            shared = self._shared(child, rest)
            if shared < child.num_tokens:
                child = self._split(child, shared)
            path.append(child)
            node = child
            matched += shared
            rest = cut(rest, shared)[1]
        for used in path:
            used.stamp = self._tick()
        return Match(matched, node)

    def insert(self, key: Runs, num_tokens: int, inserted: int = 0) -> Match:
        """Add `key`, whose pages are full; how much was there, and the node that it ends with.

        Args:
            key: the tokens.
            num_tokens: how many.
            inserted: leading tokens that the same request has inserted before; they count no hit.
        """
        node, known, rest = self.root, 0, key
        while rest:
            child = self._child(node, rest)
            if child is None:
                break
            child.stamp = self._tick()
            shared = self._shared(child, rest)
            if shared < child.num_tokens:
                child = self._split(child, shared)
            known += shared
            if known > inserted:
                child.hits += 1
            node = child
            rest = cut(rest, shared)[1]
        if rest:
            node = self._add(node, rest, num_tokens - known)
            node.hits = int(num_tokens > inserted)
        return Match(known, node)

    def lock(self, node: Node) -> None:
        """Keep the path to `node` from eviction."""
        while node.parent is not None:
            if not node.locks:
                self.num_evictable -= node.num_tokens
                self.num_locked += node.num_tokens
            node.locks += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """Undo one `lock` of the same node."""
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self.num_evictable += node.num_tokens
                self.num_locked -= node.num_tokens
                self._offer(node)
            node = node.parent

    def evict(self, num_tokens: int) -> int:
        """Drop unlocked leaves until so many tokens are free of them; how many were dropped."""
        freed = 0
        while freed < num_tokens and self._victims:
            rank, leaf = heapq.heappop(self._victims)
            leaf.offered = False
            if leaf.locks or leaf.children or leaf.parent is None:
                continue
            if rank != self._rank(leaf):
                self._offer(leaf)
                continue
            freed += leaf.num_tokens
            parent, leaf.parent = leaf.parent, None
            del parent.children[self._page(leaf.key)]
            self._offer(parent)
        self.num_evictable -= freed
        return freed

    def depth_first(self, nodes: Sequence[Node]) -> list[int]:
        """Positions in `nodes` in depth-first order, children with more of `nodes` below first.

        A node's own come after those below it (SGLang's `dfs-weight`).
        """
        at: dict[Node, list[int]] = {}
        weight: dict[Node, int] = {}
        for position, node in enumerate(nodes):
            at.setdefault(node, []).append(position)
            above: Node | None = node
            while above is not None:
                weight[above] = weight.get(above, 0) + 1
                above = above.parent
        order: list[int] = []
        stack: list[tuple[Node, bool]] = [(self.root, False)]
        while stack:
            node, left = stack.pop()
            if left:
                order += at.get(node, ())
                continue
            below = [child for child in node.children.values() if child in weight]
            below.sort(key=lambda child: -weight[child])
            stack.append((node, True))
            stack += [(child, False) for child in reversed(below)]
        return order

    def nodes(self) -> Iterable[Node]:
        """All nodes but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _page(self, key: Runs) -> Runs:
        return head(key, self._page_size)

    def _child(self, node: Node, rest: Runs) -> Node | None:
        return node.children.get(self._page(rest))

    def _shared(self, child: Node, rest: Runs) -> int:
        """Tokens that begin both, in whole pages; at least one page, by which it was found."""
        shared = common(child.key, rest)
        return shared - shared % self._page_size

    def _add(self, parent: Node, key: Runs, num_tokens: int) -> Node:
        leaf = Node(key, num_tokens, parent, self._tick())
        parent.children[self._page(key)] = leaf
        self.num_evictable += num_tokens
        self._offer(leaf)
        return leaf

    def _split(self, child: Node, at: int) -> Node:
        """Put a new node with the first `at` tokens between `child` and its parent."""
        above, below = cut(child.key, at)
        upper = Node(above, at, child.parent, self._tick())
        upper.created, upper.hits, upper.locks = child.created, child.hits, child.locks
        upper.children[self._page(below)] = child
        if child.parent is not None:
            # the key is the same, so the place among the parent's children is, too
            child.parent.children[self._page(above)] = upper
        child.parent, child.key, child.num_tokens = upper, below, child.num_tokens - at
        child.stamp = self._tick()  # the engine counts a split as a use of both parts
        return upper

    def _offer(self, node: Node) -> None:
        """Let `node` be a victim if it is an unlocked leaf."""
        if node.locks or node.children or node.parent is None or node.offered:
            return
        node.offered = True
        heapq.heappush(self._victims, (self._rank(node), node))
