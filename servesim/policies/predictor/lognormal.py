"""Prediction with multiplicative log-normal error."""

from dataclasses import dataclass

from servesim import checks
from servesim.records import Request
from servesim.seeds import stream


@dataclass(frozen=True, slots=True)
class LogNormalError:
    """True length × exp(sigma · N(0, 1)): median right, sigma 0 is the oracle.

    Attributes:
        sigma: spread of the log error; at 0.5 half of the predictions are within a factor 1.4.
    """

    sigma: float = 0.5

    def __post_init__(self) -> None:
        checks.not_negative("sigma", self.sigma)

    def predict(self, request: Request, seed: int) -> float:
        """Drawn from the request's own stream, so the order of asking does not matter."""
        truth = float(min(request.output_tokens, request.max_tokens))
        if self.sigma == 0:
            return truth
        factor = stream(seed, "predictor", request.rid).lognormal(0.0, self.sigma)
        return max(1.0, round(truth * float(factor)))

    def describe(self) -> str:
        """Names the law and its spread."""
        return f"log-normal error, sigma {self.sigma:g}"
