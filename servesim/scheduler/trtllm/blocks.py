"""Blocks of a cache in which nobody admitted ever lacks one (GUARANTEED_NO_EVICT).

A request gets the blocks of its whole prompt when it is admitted and one more whenever its last one
is full. What it may still take to its longest end is owed to it: only blocks that are free and owed
to nobody let a further request in.
"""

from collections.abc import Sequence

from servesim.kv.counted import CountedPool
from servesim.kv.manager import KVManager, Need
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.state import RequestState
from servesim.scheduler.trtllm.limits import TensorRTLLMLimits


class OwedBlocks:
    """Hands out blocks that are owed.

    Attributes:
        manager: of the blocks.
        num_owed: blocks that admitted requests may still take.
        queries: prompt tokens looked up.
        hits: of them, tokens that were cached.
    """

    def __init__(self, limits: TensorRTLLMLimits, setup: EngineSetup) -> None:
        self._limits = limits
        self.manager = KVManager(
            CountedPool(limits.num_blocks + 1),
            limits.block_size,
            setup.max_model_len,
            setup.cache.enable_prefix_caching,
        )
        self.num_owed = self.queries = self.hits = 0

    def fits(self, state: RequestState) -> bool:
        """Whether a waiting request could run to its longest end, beside all who run."""
        needed = self._limits.blocks_to_reserve(state.request)
        return needed <= self.manager.pool.num_free - self.num_owed

    def admit(self, state: RequestState) -> int:
        """Give a request that fits the blocks of its prompt; the tokens that were cached."""
        manager, table = self.manager, state.table
        prompt = state.request.prompt_tokens
        hits = manager.lookup(table, prompt)
        cached = hits.num_blocks * self._limits.block_size
        # 0 known tokens: no block is found by others before the prompt is done
        manager.admit(table, Need(prompt - cached, 0, hits=hits))
        self.num_owed += self._limits.blocks_to_reserve(state.request) - table.num_blocks
        if manager.prefix_caching:
            self.queries += prompt
            self.hits += cached
        return cached

    def grow(self, state: RequestState, tokens: int) -> None:
        """Room for so many computed tokens."""
        before = state.table.num_blocks
        self.manager.extend(state.table, tokens, 0, 0)
        self.num_owed -= state.table.num_blocks - before

    def by_step(self, running: Sequence[RequestState], steps: int) -> list[int]:
        """Blocks that each of so many steps of decodes takes."""
        size = self._limits.block_size
        due = [0] * size
        for state in running:
            due[-state.computed % size] += 1
        return [due[step % size] for step in range(steps)]

    def prompt_done(self, state: RequestState) -> None:
        """Its full blocks can be found from now on."""
        self.manager.register(state.table, state.request.prompt_tokens)

    def release(self, state: RequestState) -> None:
        """All blocks back; the reply's, whose last token has no KV, can be found from now on."""
        self.num_owed -= self._limits.blocks_to_reserve(state.request) - state.table.num_blocks
        self.manager.register(state.table, state.known - 1)
        self.manager.release(state.table)
