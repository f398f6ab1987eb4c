"""The KV blocks that an engine gets: one rule for simulations and for `servesim size`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from servesim.deployment import Deployment
from servesim.errors import CapacityError, SettingError
from servesim.kv.budget import NO_DRAFT, Draft, KVBudget
from servesim.kv.capacity import KVSettings
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.scheduler.sizing_rules import engine_memory

_TP_SIZES = (2, 4, 8, 16, 32, 64)
_SHORTEST = 1024  # tokens of a context that is still worth suggesting


class EngineBudget(NamedTuple):
    """How an engine divides memory, and the blocks that this leaves."""

    engine: EngineMemory
    budget: KVBudget

    def holds(self, tokens: int) -> bool:
        """Whether one request of so many tokens fits, without which vLLM refuses to start."""
        return self.budget.layout.blocks_per_request(tokens) <= self.blocks_at_start_up

    @property
    def blocks_at_start_up(self) -> int:
        """Blocks that the engine counts on when it looks whether `max_model_len` fits."""
        rules = self.engine.rules
        return self.budget.num_gpu_blocks - (rules.null_block and rules.start_up_knows)


@dataclass(frozen=True, slots=True)
class CacheOf:
    """Whose cache is asked about.

    Attributes:
        profile: the engine's settings.
        settings: of the cache.
        deployment: what is served on what.
        max_model_len: longest context, tokens; None is the model's, or what the cache holds if
            that is less.
        draft: what a drafter adds.
        num_speculative_tokens: drafts per verification; None is the profile's.
    """

    profile: Any
    settings: KVSettings
    deployment: Deployment
    max_model_len: int | None = None
    draft: Draft = NO_DRAFT
    num_speculative_tokens: int | None = None

    def derive(self) -> EngineBudget:
        """The engine's blocks, and every term behind them.

        Raises:
            CapacityError: no block is left; it names the terms and the nearest choice that works.
            SettingError: the engine has no limits for its settings.
        """
        try:
            return self._derive()
        except CapacityError as error:
            nearest = next((text for text, cache in self._others() if cache._works()), None)
            hint = "" if nearest is None else f"; nearest: {nearest}"
            raise CapacityError(f"{error}{hint}") from None

    def _derive(self) -> EngineBudget:
        settings, deployment = self.settings, self.deployment
        longest = self.max_model_len or deployment.model.max_position_embeddings
        ask = Ask(
            deployment,
            longest,
            settings.weight_bytes(deployment, self.draft),
            settings.block_size,
            settings.enable_prefix_caching,
            self.num_speculative_tokens,
            settings.gpu_memory_utilization,
        )
        try:
            engine = engine_memory(self.profile, ask)
        except SettingError as error:
            raise error.within("scheduler") from None
        budget = settings.budget(deployment, engine.needs, longest, engine.rules, self.draft)
        return EngineBudget(engine, budget)

    def _works(self) -> bool:
        """Whether there is a cache, and room in it for the context that was asked for."""
        try:
            found = self._derive()
        except (CapacityError, SettingError):
            return False
        return self.max_model_len is None or found.holds(self.max_model_len)

    def _others(self) -> Iterator[tuple[str, "CacheOf"]]:
        """What may leave more room: a shorter context, as some engines keep memory for it; ranks.

        Nothing where a drafter or measured sizes hold for this deployment only.
        """
        settings, deployment = self.settings, self.deployment
        measured = (settings.weights_gib, settings.kv_cache_gib, settings.num_gpu_blocks)
        if self.draft != NO_DRAFT or measured != (None, None, None):
            return
        length = self.max_model_len or deployment.model.max_position_embeddings
        length = 1 << (length - 1).bit_length() - 1  # the next power of two below
        while length >= _SHORTEST:
            yield f"max_model_len={length}", replace(self, max_model_len=length)
            length //= 2
        for tp in _TP_SIZES:
            if tp > deployment.tp and deployment.model.splits_over(tp):
                yield f"tp={tp}", replace(self, deployment=replace(deployment, tp=tp))
