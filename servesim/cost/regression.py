"""A regression of whole step times with few, physically meant terms.

For sources that time whole batches, or few of them, where tables of kernels would be guesses:

    step = √[corner](step_us^corner + (us_per_token · tokens)^corner)   weights read | matrices
         + us_per_spilled_token · max(0, tokens − spill_tokens)         large batches run worse
         + us_per_kv_token · KV tokens read
         + us_per_query_key · Σ chunk · (past + chunk / 2)              attention of prompts
         + us_per_seq · requests
         + chunk_us, where there is any prefill chunk

Microseconds. No coefficient is negative, so no step gets shorter by a token, a longer context or a
request more. Written by `python -m validation.fit` (see validation/fit/steps.py).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from servesim import checks
from servesim.cost.batch import Batch, measured, only_decodes
from servesim.cost.durations import Progression
from servesim.cost.fit_range import FitRange
from servesim.cost.measured_on import MeasuredOn, require
from servesim.deployment import Deployment
from servesim.errors import SettingError
from servesim.records import Decodes, StepPlan, StepTime
from servesim.units import PS_PER_US, US_PER_S, seconds_to_ps

CORNERS = (2, 4)  # exponents that need square roots only, which are the same on every machine
ONE_QUERY = 1  # per tile, so that `Batch.tiled_context` is the sum over the tokens of a chunk


@dataclass(frozen=True, slots=True)
class Terms:
    """Coefficients of the regression.

    Attributes:
        step_us: of a step of one token: weights read, and what every step costs.
        us_per_token: of a large batch.
        corner: 2 turns gradually from the first to the second, 4 more sharply.
        us_per_spilled_token: further, per token beyond `spill_tokens`.
        spill_tokens: of the batch.
        us_per_kv_token: per token of context of all requests.
        us_per_query_key: per pair of a chunk's token and a token that it attends to.
        us_per_seq: per request.
        chunk_us: of a step with a prefill chunk, over one without.
    """

    step_us: float
    us_per_token: float
    corner: int
    us_per_spilled_token: float
    spill_tokens: int
    us_per_kv_token: float
    us_per_query_key: float
    us_per_seq: float
    chunk_us: float

    def __post_init__(self) -> None:
        for field in fields(self):
            checks.not_negative(f"coefficients.{field.name}", getattr(self, field.name))
        checks.whole("coefficients.spill_tokens", self.spill_tokens)
        if self.corner not in CORNERS:
            raise SettingError("coefficients.corner", self.corner, f"must be one of {CORNERS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(MeasuredOn):
    """Step time from a few terms that hold for one deployment.

    Attributes, beside those of `MeasuredOn`:
        coefficients: see `Terms`.
    """

    KIND = "regression of whole steps of"

    coefficients: Mapping[str, Any]

    def __post_init__(self) -> None:
        MeasuredOn.__post_init__(self)  # slots rule out super() without arguments
        _terms(self.coefficients)

    def bind(self, deployment: Deployment) -> "RegressionTimer":
        """The timer for `deployment`.

        Raises:
            CostMismatchError: it differs from what was measured and `allow_mismatch` is false.
        """
        self.refuse_others(deployment)
        return RegressionTimer(_terms(self.coefficients), FitRange(self.fit_range))


class RegressionTimer:
    """The regression bound to a deployment."""

    def __init__(self, terms: Terms, fit_range: FitRange) -> None:
        self._c = terms
        self._range = fit_range
        # a token of context costs whole picoseconds, so that a run of decodes is a progression
        self._kv_token_ps = round(PS_PER_US * terms.us_per_kv_token)

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time of one step, and the axes on which it lies outside the fitted range."""
        batch = measured(plan.work, plan.decodes, ONE_QUERY)
        duration_ps = self._without_kv_ps(batch)
        duration_ps += self._kv_token_ps * (batch.context + batch.chunk_context)
        return StepTime(duration_ps, self._range.outside(batch))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """As long as the fitted range keeps its verdict; the time grows with the context alone."""
        steps = min(steps, self._range.steps_alike(decodes))
        first_ps = self._without_kv_ps(only_decodes(decodes))
        first_ps += self._kv_token_ps * decodes.context
        outside = self._range.outside_decodes(decodes)
        return Progression(first_ps, self._kv_token_ps * decodes.seqs, steps, outside)

    def _without_kv_ps(self, batch: Batch) -> int:
        """A step but for the KV that it reads."""
        c = self._c
        us = rounded_max(c.step_us, c.us_per_token * batch.tokens, c.corner)
        if batch.tokens > c.spill_tokens:
            us += c.us_per_spilled_token * (batch.tokens - c.spill_tokens)
        us += c.us_per_query_key * batch.tiled_context + c.us_per_seq * batch.requests
        if batch.chunk_tiles:
            us += c.chunk_us
        return seconds_to_ps(us / US_PER_S)


def rounded_max(a: float, b: float, corner: int) -> float:
    """(a^corner + b^corner)^(1/corner): near the larger one, up to 2^(1/corner) of it if equal."""
    if corner == 2:
        return math.sqrt(a * a + b * b)
    a, b = a * a, b * b
    return math.sqrt(math.sqrt(a * a + b * b))


def _terms(tree: object) -> Terms:
    names = tuple(field.name for field in fields(Terms))
    require("coefficients", tree, names)
    given = dict(tree) if isinstance(tree, Mapping) else {}
    for key in given:
        if key not in names:
            raise SettingError(f"coefficients.{key}", given[key], f"is none of {', '.join(names)}")
    return Terms(**given)
