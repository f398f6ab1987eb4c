"""Shortest job first on a predicted reply length."""

from dataclasses import dataclass

from servesim import checks
from servesim.records import Waiting


@dataclass(frozen=True, slots=True)
class SjfPredicted:
    """The request with the least predicted work left first.

    Work is counted in tokens, a prompt token `prompt_weight` times a reply token: a prefill
    computes its tokens in one pass, a reply pays a pass for each.

    Attributes:
        prompt_weight: cost of a prompt token in reply tokens.
        patience_s: whoever has waited longer jumps the queue, so nobody starves; null for never.
    """

    prompt_weight: float = 0.0
    patience_s: float | None = None

    def __post_init__(self) -> None:
        checks.not_negative("prompt_weight", self.prompt_weight)
        if self.patience_s is not None:
            checks.positive("patience_s", self.patience_s)

    @property
    def changes_with_time(self) -> bool:
        """Only patience depends on the clock."""
        return self.patience_s is not None

    def key(self, waiting: Waiting, now_s: float) -> tuple[float, ...]:
        """The impatient in order of arrival, then by predicted tokens left."""
        if self.patience_s is not None and now_s - waiting.arrived_s > self.patience_s:
            return (0.0, waiting.arrived_s)
        left = max(waiting.predicted_tokens - waiting.generated_tokens, 0.0)
        return (1.0, left + self.prompt_weight * waiting.prompt_tokens)
