"""Fits of the two kinds of attention call; formulas as in servesim/cost/fitted_timer.py."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import least_squares

from servesim.cost.coefficients import DecodeAttention, MixedAttention
from validation.fit.rows import Attention, Mask
from validation.sources.tables import Array

SOFT = 0.03  # relative error from which a residual counts linearly, not squared
FIRST_KV_TOKENS = (8e3, 1.6e4, 3.2e4, 6.4e4, 1.28e5)
SPILL_KV_TOKENS = (3.2e4, 6.4e4, 9.6e4, 1.28e5, 1.92e5, 2.56e5)
SPILL_SEQS = (16.0, 32.0, 48.0, 64.0, 96.0)
SEARCH_EVERY = 4
# queries per task: the times of a chunk on a long past step at multiples of 64 queries
TILE_QUERIES = 64
# FlashAttention-2 (num_splits_heuristic) stops splitting KV from 0.8 × 2 × SMs tasks on, a task
# being a sequence's KV head: two thread blocks fit on one SM
SPLIT_BELOW_TASKS_PER_SM = 1.6
# of the batch: one long sequence in eight or fewer, as in served batches, not half of them
FEW_LONG = 1 / 8


def fit_decode(rows: Attention, kv_heads: int, multiprocessors: int) -> DecodeAttention:
    """Calls of decodes only; without the term for unequal lengths, which `uneven_us` adds."""
    whole = float(math.ceil(SPLIT_BELOW_TASKS_PER_SM * multiprocessors / kv_heads))

    def at(x: Array, first: float) -> DecodeAttention:
        us, per_seq, per_kv, per_first, if_whole = (float(value) for value in x)
        return DecodeAttention(us, per_seq, per_kv, per_first, first, whole, if_whole, 0.0)

    context = rows.seqs * rows.kv
    tries = [
        ((v,), lambda x, v=v: rows.residual(decodes_us(rows.seqs, context, rows.kv, at(x, v))))
        for v in FIRST_KV_TOKENS
    ]
    x, (first,) = _best(tries, np.array([10.0, 0.05, 0.003, 0.0003, 10.0]))
    return at(x, first)


def decodes_us(seqs: Array, context: Array, longest: Array, c: DecodeAttention) -> Array:
    """What `seqs` decodes of so much context together, and at most, take."""
    us = c.us + c.us_per_seq * seqs + c.us_per_kv_token * context
    us += c.us_per_first_kv_token * np.minimum(context, c.first_kv_tokens)
    whole = c.us_if_whole + c.us_per_uneven_token * (longest - context / seqs)
    return np.asarray(us + whole * (seqs >= c.whole_from_seqs))


def uneven_rows(skew: dict[str, Array], whole_from_seqs: float, kv_tokens: float) -> Mask:
    """Skew rows of decodes only, unsplit, with few long sequences, that a server could hold."""
    few = skew["nb"] <= FEW_LONG * skew["n"]
    reachable = skew["n"] * skew["kv_mean"] <= kv_tokens
    return np.asarray((skew["pc"] == 0) & (skew["n"] >= whole_from_seqs) & few & reachable)


def uneven_us(skew: dict[str, Array], rows: Mask, us_per_kv_token: float) -> float:
    """Microseconds per token by which the longest decode exceeds the mean.

    alpha says how far an uneven batch lies between the time at the mean and at the longest
    context, n · us_per_kv_token · (longest − mean) apart; alpha · n is close to a constant, since
    what remains at the end is one sequence, whatever the batch.
    """
    return float(np.median(skew["alpha"][rows] * skew["n"][rows])) * us_per_kv_token


def fit_mixed(rows: Attention, decode: DecodeAttention, heads_per_kv: int) -> MixedAttention:
    """Calls with a prefill chunk; `decode` is what decodes of the same contexts would take."""
    # at worst, every query head reads the KV that it shares from memory by itself
    upper = np.append(np.full(8, np.inf), heads_per_kv * decode.us_per_kv_token)
    start = np.array([5.0, 0.025, 0.04, 2.0, 0.004, 0.9, 0.004, 0.4, 0.004])
    start = np.minimum(start, 0.9 * upper)
    largest = float((rows.seqs * rows.kv).max())
    spills = [(kv, n) for kv in SPILL_KV_TOKENS if kv < largest for n in SPILL_SEQS] or [(0.0, 0.0)]
    # where the cache spills is looked for on a part of the rows, the rest is fitted on all
    some = rows.where(np.arange(len(rows.us)) % SEARCH_EVERY == 0)
    start, spill = _best([(s, _mixed_residual(some, decode, s)) for s in spills], start, upper)
    start = np.clip(start, 1e-6, 0.999 * upper)
    x, _ = _best([(spill, _mixed_residual(rows, decode, spill))], start, upper)
    return MixedAttention(TILE_QUERIES, *(float(value) for value in x), *spill)


def _mixed_residual(
    rows: Attention, decode: DecodeAttention, spill: tuple[float, ...]
) -> Callable[[Array], Array]:
    """Residual of mixed calls, by the fields of MixedAttention from task_us on."""
    tiles = np.ceil(rows.chunk / TILE_QUERIES)
    tiled = tiles * (rows.past + rows.chunk / 2)
    context = rows.seqs * rows.kv
    longest = np.maximum(rows.past + rows.chunk, rows.kv)
    spilled = np.maximum(0.0, 1 - spill[1] / np.maximum(rows.seqs, 1))
    spilled *= np.maximum(0.0, context - spill[0])
    ends = rows.past + rows.chunk
    as_decodes = decodes_us(rows.seqs + 1, context + ends, longest, decode)

    def residual(x: Array) -> Array:
        task = x[0] + x[1] * longest
        total = x[2] * (rows.seqs + 1) * tiles + x[3] * tiles + x[4] * tiled
        total += x[5] * rows.seqs + x[6] * context + x[7] * task + x[8] * spilled
        return rows.residual(np.maximum(as_decodes, np.maximum(task, total)))

    return residual


def _best(
    tries: Sequence[tuple[tuple[float, ...], Callable[[Array], Array]]],
    start: Array,
    upper: float | Array = np.inf,
) -> tuple[Array, tuple[float, ...]]:
    """The solution and the settings with the lowest robust loss."""
    fits = [
        least_squares(
            residual, start, bounds=(0.0, upper), loss="soft_l1", f_scale=SOFT, x_scale=start
        )
        for _, residual in tries
    ]
    costs = [fit.cost for fit in fits]
    winner = costs.index(min(costs))
    return np.asarray(fits[winner].x), tries[winner][0]
