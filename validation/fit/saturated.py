"""Step time of one GPU from runs that it was never idle in: few coefficients, several models.

    step = (weights^p + products^p)^(1/p)    us_per_gb · GB read, us_per_gflop · GFLOP of tokens
         + attention at short contexts       as measured on a GPU of the same architecture
         + us_per_kv_token · context of decodes + us_per_seq · requests
         + eager_us, beyond the largest CUDA graph

The first two coefficients and p are the GPU's, the others the model's own: its cache, and what is
done per sequence and step in sampler and host. A run's duration has `us_per_sent` per request on
top: what the client and the API server take before the engine sees the first of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from validation.sources.tables import Array

SHARED = ("us_per_gb", "us_per_gflop", "corner", "us_per_sent")
OWN = ("us_per_kv_token", "us_per_seq", "eager_us")
START = {
    "us_per_gb": 800.0,
    "us_per_gflop": 1.6,
    "corner": 1.4,
    "us_per_sent": 1000.0,
    "us_per_kv_token": 0.06,
    "us_per_seq": 5.0,
    "eager_us": 2000.0,
}
CORNER = (1.0, 6.0)
SOFT = 0.05  # relative error from which a residual counts linearly, not squared
NEGLIGIBLE = 1e-6  # of where a coefficient starts: the bound at zero

Values = dict[str, float]


@dataclass(frozen=True)
class Size:
    """What a step reads and computes, per model: GB of weights, GFLOP of a token."""

    gb: float
    gflop: float


@dataclass(frozen=True)
class Target:
    """A measured time that is a weighted sum of steps.

    Attributes:
        name: of the run.
        what: "itl", "step" or "makespan".
        model: whose own coefficients hold.
        group: targets of one group are held out together.
        tokens: distinct batch sizes, as CUDA graphs pad them.
        weights: of the steps of each.
        attention_us: weighted, at short contexts.
        kv_tokens: weighted context of decodes.
        requests: weighted.
        eager: weighted steps beyond the largest graph.
        sent: requests that are sent before the first step; 0 where that is not in the time.
        us: measured.
    """

    name: str
    what: str
    model: str
    group: str
    tokens: Array
    weights: Array
    attention_us: float
    kv_tokens: float
    requests: float
    eager: float
    sent: float
    us: float


def products_us(tokens: Array, size: Size, values: Values) -> Array:
    """Reading the weights and multiplying by them."""
    read, multiplied = values["us_per_gb"] * size.gb, values["us_per_gflop"] * size.gflop * tokens
    p = values["corner"]
    return np.asarray((read**p + multiplied**p) ** (1 / p))


def predicted_us(target: Target, size: Size, values: Values) -> float:
    """A target by the formula; own coefficients are called `MODEL.NAME`."""
    kv, seq, eager = (values[f"{target.model}.{name}"] for name in OWN)
    us = float(target.weights @ products_us(target.tokens, size, values))
    us += target.attention_us + kv * target.kv_tokens + seq * target.requests
    return us + eager * target.eager + values["us_per_sent"] * target.sent


def log_ratio(target: Target, size: Size, values: Values) -> float:
    """log(predicted ÷ measured)."""
    return float(np.log(predicted_us(target, size, values) / target.us))


def fit_values(targets: Sequence[Target], sizes: dict[str, Size]) -> Values:
    """Coefficients with the lowest robust loss over all models at once."""
    models = sorted({target.model for target in targets})
    names = [*SHARED, *(f"{model}.{name}" for model in models for name in OWN)]
    start = np.array([START[name.rpartition(".")[2]] for name in names])
    low, high = np.zeros(len(names)), np.full(len(names), np.inf)
    at = names.index("corner")
    low[at], high[at] = (bound / START["corner"] for bound in CORNER)

    def values(x: Array) -> Values:
        return dict(zip(names, (x * start).tolist(), strict=True))

    def residuals(x: Array) -> list[float]:
        tried = values(x)
        return [log_ratio(target, sizes[target.model], tried) for target in targets]

    solved = least_squares(
        residuals, np.ones(len(names)), bounds=(low, high), loss="soft_l1", f_scale=SOFT
    )
    return values(np.where(solved.x < NEGLIGIBLE, 0.0, solved.x))


def held_out_errors(targets: Sequence[Target], sizes: dict[str, Size]) -> Array:
    """Predicted ÷ measured − 1 of each group by a fit to all the others."""
    errors = np.zeros(len(targets))
    for group in sorted({target.group for target in targets}):
        values = fit_values([t for t in targets if t.group != group], sizes)
        for place, target in enumerate(targets):
            if target.group == group:
                errors[place] = np.expm1(log_ratio(target, sizes[target.model], values))
    return errors
