"""The largest first."""

from dataclasses import dataclass

from servesim.policies.victim.base import Running


@dataclass(frozen=True, slots=True)
class MostBlocks:
    """Who holds the most blocks: the fewest victims, each of them the dearest to recompute."""

    def key(self, running: Running) -> tuple[float, ...]:
        """The blocks held."""
        return (running.kv_blocks,)
