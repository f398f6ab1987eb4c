"""The largest first."""

from dataclasses import dataclass

from servesim.policies.victim.base import Running


@dataclass(frozen=True, slots=True)
class MostBlocks:
    """Who holds the most blocks: the fewest victims, each of them the dearest to recompute.

    Whoever gets on becomes the next victim. Where chunks are so short that recomputing is no faster
    than decoding (`long_prefill_token_threshold=1`), and no prefix is cached, two long requests can
    preempt each other for ever, and a run without `until_s` does not end.
    """

    def key(self, running: Running) -> tuple[float, ...]:
        """The blocks held."""
        return (running.kv_blocks,)
