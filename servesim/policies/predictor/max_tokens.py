"""The cap as the prediction."""

from dataclasses import dataclass

from servesim.records import Request


@dataclass(frozen=True, slots=True)
class MaxTokens:
    """Nothing is known but `max_tokens` (the pessimism of an engine without a predictor)."""

    def predict(self, request: Request, seed: int) -> float:
        """The request's own cap."""
        return float(request.max_tokens)

    def describe(self) -> str:
        """Names the rule."""
        return "max_tokens as prediction"
