"""Shortest prompt first."""

from dataclasses import dataclass

from servesim import checks
from servesim.records import Waiting


@dataclass(frozen=True, slots=True)
class ShortestPrompt:
    """The request with the fewest tokens to prefill first, so that few wait behind a long prefill.

    Attributes:
        patience_s: whoever has waited longer jumps the queue, so nobody starves; null for never.
    """

    patience_s: float | None = None

    def __post_init__(self) -> None:
        if self.patience_s is not None:
            checks.positive("patience_s", self.patience_s)

    @property
    def changes_with_time(self) -> bool:
        """Only patience depends on the clock."""
        return self.patience_s is not None

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """The impatient in order of arrival, then by known tokens."""
        if self.patience_s is not None and now_s - waiting.arrived_s > self.patience_s:
            return (0.0, waiting.arrived_s)
        return (1.0, waiting.prompt_tokens + waiting.generated_tokens)
