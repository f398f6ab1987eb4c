"""Which layers share a block table, how large a block is, and what a request takes of the blocks.

vLLM hands out blocks of one size to every group of layers. Layers that all keep the whole context
are one group, as large as they are. Where some keep a window or a state, layers of one kind are
cut into groups of equal numbers of layers, and the page of one layer has one size in all of them:
the attention block is raised until a recurrent state fits into a page, and layers with fewer
bytes per token get longer blocks. Source: vLLM 0.33.0, v1/core/kv_cache_planning.py (grouping),
v1/kv_cache_interface.py (blocks per request), platforms/interface.py (attention block).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from servesim.errors import SettingError
from servesim.model.parts import KVLayers

KERNEL_TOKENS = 16  # an attention block is a multiple of the smallest that kernels take
PACKED_TOKENS = 256  # block of a model with compressed layers (DeepSeek-V4, vLLM 0.33)


@dataclass(frozen=True, slots=True)
class CacheRules:
    """What of an engine and its settings decides how a request's cache is laid out.

    Attributes:
        block_size: tokens per block, before it is raised.
        enable_prefix_caching: whether full blocks are shared by content.
        in_flight_tokens: tokens scheduled but not yet settled, which a window keeps beside itself:
            `max_num_batched_tokens`, and twice that where a step is planned during another.
        num_speculative_tokens: drafts per verification.
        equal_below: kinds of layers whose numbers differ by less than this factor get one group
            each, the smaller one padded; 1 never pads so.
        latent_tokens: a latent's block beside recurrent layers is a multiple of this.
        aligned_states: states of a recurrent layer that a request holds with prefix caching.
        null_block: whether one block of the pool never holds anything.
        start_up_knows: whether the engine, at start-up, does not count on that block.
    """

    block_size: int = 16
    enable_prefix_caching: bool = True
    in_flight_tokens: int = 8192
    num_speculative_tokens: int = 0
    equal_below: float = 1.5
    latent_tokens: int = 128
    aligned_states: int = 2
    null_block: bool = True
    start_up_knows: bool = True

    @property
    def states_per_request(self) -> int:
        """Recurrent states that one request holds in one layer."""
        states = self.aligned_states if self.enable_prefix_caching else 1
        return states + self.num_speculative_tokens


class KVGroup(NamedTuple):
    """Layers that share one block table.

    Attributes:
        kind: of the layers, e.g. "full attention"; several, joined by " + ", where they are mixed.
        num_layers: of them.
        block_size: tokens per block.
        window_tokens: tokens that a request keeps at most; None is all of them.
        recurrent: whether the layers keep states instead of tokens.
    """

    kind: str
    num_layers: int
    block_size: int
    window_tokens: int | None = None
    recurrent: bool = False

    def blocks(self, tokens: int, rules: CacheRules) -> int:
        """Blocks that a request of so many tokens takes at most."""
        if self.recurrent:
            return rules.states_per_request
        if self.window_tokens is None:
            return -(-tokens // self.block_size)
        kept = min(self.window_tokens - 1 + rules.in_flight_tokens, tokens)
        # +1: the window need not begin where a block does
        return -(-kept // self.block_size) + 1


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The groups of one model, and their common block.

    Attributes:
        groups: they draw on the same blocks.
        block_bytes: of one block on one rank, padding included.
        rules: that it follows.
        state_padding: share by which a recurrent state was padded to an attention page; None
            without recurrent layers.
    """

    groups: tuple[KVGroup, ...]
    block_bytes: int
    rules: CacheRules
    state_padding: float | None = None

    @property
    def uniform(self) -> bool:
        """Whether every block holds tokens of all layers, and a request's blocks its context."""
        return len(self.groups) == 1 and self.groups[0].window_tokens is None

    @property
    def block_size(self) -> int:
        """Tokens per block of the layers that keep the whole context, or of the smallest group."""
        whole = [g.block_size for g in self.groups if g.window_tokens is None and not g.recurrent]
        return min(whole or [group.block_size for group in self.groups])

    @property
    def prefix_tokens(self) -> int:
        """Multiple of tokens in which a shared prefix is found: every group must have it."""
        return math.lcm(*(group.block_size for group in self.groups))

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks that a request of so many tokens takes at most."""
        return sum(group.blocks(tokens, self.rules) for group in self.groups)

    def concurrency(self, num_blocks: int, max_model_len: int) -> float:
        """Requests of the greatest length that the blocks hold, as the engine logs it."""
        return num_blocks / self.blocks_per_request(max_model_len)

    def longest(self, num_blocks: int, at_most: int) -> int:
        """Tokens of the longest request that the blocks hold alone; 0 where none."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.blocks_per_request(middle) <= num_blocks
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def prefix_hit(self, shared_tokens: int, drops_last: bool = False) -> int:
        """Tokens found of a prefix that others have computed.

        Args:
            shared_tokens: tokens that the prompts begin with alike.
            drops_last: the last block found is computed again (EAGLE and MTP drafters).
        """
        found = shared_tokens // self.prefix_tokens
        return max(found - drops_last, 0) * self.prefix_tokens


def layout_of(caches: Sequence[KVLayers], rules: CacheRules) -> KVLayout:
    """Lay out the caches of a model, as `ModelSpec.kv_layers` counts them.

    Raises:
        SettingError: the model keeps nothing of a request.
    """
    if not caches:
        raise SettingError("model", "", "no layer keeps a KV cache")
    if any(cache.kind == "compressed" for cache in caches):
        return _packed(caches, rules)
    if not any(cache.state_bytes for cache in caches):
        windows = {cache.window_tokens for cache in caches}
        if len(windows) == 1:
            return _one_group(caches, rules, windows.pop())
    return _equal_groups(caches, rules)


def request_bytes(caches: Sequence[KVLayers], tokens: int) -> int:
    """Bytes of the cache of one request on one rank, not rounded up to blocks."""
    total = 0
    for cache in caches:
        kept = tokens if cache.window_tokens is None else min(tokens, cache.window_tokens)
        total += cache.num_layers * (kept * cache.bytes_per_token + cache.state_bytes)
    return total


def growth_bytes(caches: Sequence[KVLayers]) -> int:
    """Bytes that one more token adds on one rank once every window is full."""
    return sum(c.num_layers * c.bytes_per_token for c in caches if c.window_tokens is None)


def _kinds(caches: Sequence[KVLayers]) -> str:
    return " + ".join(dict.fromkeys(cache.kind for cache in caches))


def _one_group(caches: Sequence[KVLayers], rules: CacheRules, window: int | None) -> KVLayout:
    per_token = sum(cache.num_layers * cache.bytes_per_token for cache in caches)
    layers = max(cache.num_layers for cache in caches)
    group = KVGroup(_kinds(caches), layers, rules.block_size, window)
    return KVLayout((group,), per_token * rules.block_size, rules)


def _equal_groups(caches: Sequence[KVLayers], rules: CacheRules) -> KVLayout:
    block, padding = _attention_block(caches, rules)
    pages = [c.state_bytes or c.bytes_per_token * block for c in caches]
    page = max(pages)
    buckets: dict[tuple[int, int | None, int], list[KVLayers]] = {}
    for cache, own in zip(caches, pages, strict=True):
        # a page that does not divide the largest one is padded and keeps its block
        longer = page // own if not cache.state_bytes and page % own == 0 else 1
        key = (block * longer, cache.window_tokens, cache.state_bytes)
        buckets.setdefault(key, []).append(cache)
    sizes = [sum(cache.num_layers for cache in bucket) for bucket in buckets.values()]
    in_group = min(sizes)
    if max(sizes) < in_group * rules.equal_below:
        in_group = max(sizes)
    groups = []
    for ((tokens, window, state), bucket), layers in zip(buckets.items(), sizes, strict=True):
        count = -(-layers // in_group)
        kind = _kinds(bucket)
        for i in range(count):
            in_this = layers // count + (i < layers % count)
            groups.append(KVGroup(kind, in_this, tokens, window, state > 0))
    return KVLayout(tuple(groups), page * in_group, rules, padding)


def _attention_block(caches: Sequence[KVLayers], rules: CacheRules) -> tuple[int, float | None]:
    """Tokens per attention block, and the share by which the largest state is padded to it."""
    state = max(cache.state_bytes for cache in caches)
    whole = [c for c in caches if c.bytes_per_token and c.window_tokens is None]
    attention = whole or [c for c in caches if c.bytes_per_token]
    if not state or not attention:
        return rules.block_size, None
    per_token = max(cache.bytes_per_token for cache in attention)
    latent = any(cache.kind == "latent" for cache in attention)
    step = max(KERNEL_TOKENS, rules.block_size, rules.latent_tokens if latent else 0)
    block = max(rules.block_size, step * -(-state // (step * per_token)))
    return block, block * per_token / state - 1


def _packed(caches: Sequence[KVLayers], rules: CacheRules) -> KVLayout:
    """Compressed layers keep little per token: a block holds all of them, or some windows.

    A block is as large as a page of all layers that keep the whole context; the windows are cut
    into groups of as many layers as fit into it.
    """
    block = max(rules.block_size, PACKED_TOKENS)
    whole = [cache for cache in caches if cache.window_tokens is None]
    block_bytes = block * growth_bytes(whole)
    groups = [KVGroup(_kinds(whole), max(c.num_layers for c in whole), block)]
    for cache in caches:
        if cache.window_tokens is None:
            continue
        fit = max(block_bytes // (cache.bytes_per_token * block), 1)
        count = -(-cache.num_layers // fit)
        block_bytes = max(
            block_bytes, -(-cache.num_layers // count) * cache.bytes_per_token * block
        )
        for i in range(count):
            layers = cache.num_layers // count + (i < cache.num_layers % count)
            groups.append(KVGroup(cache.kind, layers, block, cache.window_tokens))
    return KVLayout(tuple(groups), block_bytes, rules)
