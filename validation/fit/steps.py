"""Fit of the regression of whole steps (servesim/cost/regression.py), and its held-out error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from servesim.cost.regression import CORNERS, Terms
from validation.fit.check import Part
from validation.fit.result import rounded
from validation.fit.rows import Mask
from validation.sources.tables import Array

SOFT = 0.05  # relative error from which a residual counts linearly, not squared
SPILL_TOKENS = (1024, 2048, 4096, 8192)  # where large batches may begin to run worse
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True)
class Steps:
    """Measured steps.

    Attributes:
        tokens: of the batch.
        requests: of the batch.
        kv_tokens: context of all requests.
        query_keys: pairs of a chunk's token and one that it attends to.
        chunk: whether there is a prefill chunk.
        us: measured time.
        group: points of one group are held out together.
    """

    tokens: Array
    requests: Array
    kv_tokens: Array
    query_keys: Array
    chunk: Mask
    us: Array
    group: Array

    def where(self, mask: Mask) -> "Steps":
        """The steps of `mask`."""
        return Steps(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


def predicted_us(steps: Steps, c: Terms) -> Array:
    """The regression's formula, for all steps at once."""
    rounded_max = c.step_us**c.corner + (c.us_per_token * steps.tokens) ** c.corner
    us = np.asarray(rounded_max ** (1 / c.corner))
    us += c.us_per_spilled_token * np.maximum(0.0, steps.tokens - c.spill_tokens)
    us += c.us_per_kv_token * steps.kv_tokens + c.us_per_query_key * steps.query_keys
    return np.asarray(us + c.us_per_seq * steps.requests + c.chunk_us * steps.chunk)


def fit_terms(steps: Steps) -> Terms:
    """The coefficients with the lowest robust loss, over both corners and all spill points."""
    largest = float(steps.tokens.max())
    spills = [0, *(tokens for tokens in SPILL_TOKENS if tokens < largest)]
    tries = [_solve(steps, corner, spill) for corner in CORNERS for spill in spills]
    return min(tries, key=lambda tried: tried[0])[1]


def held_out_residuals(steps: Steps) -> Array:
    """log(measured ÷ predicted) of each group of points by a fit to all the others."""
    logs = np.zeros(len(steps.us))
    for group in np.unique(steps.group):
        held = steps.group == group
        terms = fit_terms(steps.where(~held))
        logs[held] = np.log(steps.us[held] / predicted_us(steps.where(held), terms))
    return logs


def parts(steps: Steps, logs: Array, where: Sequence[str]) -> list[Part]:
    """Held-out error of prompt steps, decode steps, and all."""
    errors = np.exp(-logs) - 1
    kinds = (("prefill_step", steps.chunk), ("decode_step", ~steps.chunk))
    made = [_part(name, errors, mask, where) for name, mask in kinds if mask.any()]
    return [*made, _part("step", errors, np.ones_like(steps.chunk), where)]


def residual_tree(decode: Array, prefill: Array) -> dict[str, Any]:
    """Quantiles of log(measured ÷ predicted), as servesim/cost/residuals.py reads them."""
    return {
        "levels": list(LEVELS),
        "decode": rounded(np.quantile(decode, LEVELS)),
        "prefill": rounded(np.quantile(prefill, LEVELS)),
    }


def _solve(steps: Steps, corner: int, spill: int) -> tuple[float, Terms]:
    names = ["step_us", "us_per_token", "us_per_kv_token", "us_per_query_key", "us_per_seq"]
    names += ["chunk_us", "us_per_spilled_token"] if spill else ["chunk_us"]
    least, most = float(steps.us.min()), int(steps.us.argmax())
    per_token = float(steps.us[most] / steps.tokens[most])
    starts = {
        "step_us": 0.9 * least,
        "us_per_token": 0.7 * per_token,
        "us_per_kv_token": 0.01 * least / float(np.median(steps.kv_tokens)),
        "us_per_query_key": 0.1 * per_token / float(np.median(steps.kv_tokens)),
        "us_per_seq": 0.003 * least,
        "chunk_us": 0.1 * least,
        "us_per_spilled_token": 0.3 * per_token,
    }
    start = np.array([starts[name] for name in names])
    zero = Terms(0.0, 0.0, corner, 0.0, spill, 0.0, 0.0, 0.0, 0.0)

    def terms(x: Array) -> Terms:
        given: dict[str, Any] = {name: float(v) for name, v in zip(names, x, strict=True)}
        return replace(zero, **given)

    def residual(x: Array) -> Array:
        return np.asarray(np.log(predicted_us(steps, terms(x)) / steps.us))

    solved = least_squares(
        residual, start, bounds=(0.0, np.inf), loss="soft_l1", f_scale=SOFT, x_scale=start
    )
    x = np.where(solved.x < 1e-6 * start, 0.0, solved.x)
    return float(solved.cost), terms(x)


def _part(name: str, errors: Array, mask: Mask, where: Sequence[str]) -> Part:
    chosen = np.flatnonzero(mask)
    worst = chosen[int(np.abs(errors[chosen]).argmax())]
    return Part(name, errors[chosen], where[worst])
