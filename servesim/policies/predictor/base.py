"""The seam for length predictors."""

from typing import Protocol

from servesim.records import Request


class Predictor(Protocol):
    """Guesses reply lengths, with an error that it states."""

    def predict(self, request: Request, seed: int) -> float:
        """Predicted reply tokens; a function of the request and the seed alone."""

    def describe(self) -> str:
        """The error in words, for the summary."""
