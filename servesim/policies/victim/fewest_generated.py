"""The least advanced first."""

from dataclasses import dataclass

from servesim.policies.victim.base import Running


@dataclass(frozen=True, slots=True)
class FewestGenerated:
    """Who has the shortest reply so far: the fewest readers are stopped in mid-reply."""

    def key(self, running: Running) -> tuple[float, ...]:
        """The tokens sampled so far, fewer before more."""
        return (-running.generated_tokens,)
