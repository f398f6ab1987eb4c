"""Attention calls of a model's own heads, from calls of measured ones.

Where a number of heads was not measured:

* a sequence's KV heads are worked on apart, with the query heads that share each. So H query and
  K KV heads of B sequences take what H/f and K/f heads of f·B sequences of the same length take;
* between two measured numbers of query heads over the same KV heads, time is a line in logarithms.

Chunks with tokens before them were not measured. Attention on top of those tokens is taken to cost
`per_pair` for each new token and token before it: the slope of long prompts, which have enough
tiles to fill the GPU. FlashAttention-2, which runs on compute capabilities 8.x and 12.x, does not
split the KV of a chunk: there it takes at least as long as one tile of queries that walks all of
it (`per_step`), known from prompts of one head, which fill no GPU. The rule is 5 % off at the
median and 13 % at the 90th percentile of the 214 chunks with tokens before them in LLMServingSim's
profile of Llama-3.1-8B on RTX PRO 6000; they take 6 % longer than it says, on average.
"""

from dataclasses import dataclass

import numpy as np

from servesim.errors import SettingError
from validation.fit.kernels import grids
from validation.fit.kernels.shapes import Heads
from validation.sources.aiconfigurator import Table
from validation.sources.tables import Array

LONG_PROMPT_TOKENS = 4096  # from here on a prompt's time is nearly all products of pairs
ONE_WAVE_TOKENS = (2048, 8192)  # one head's tiles of these prompts fit on any GPU at once
PASTS = (0, 256, 1024, 4096, 16384, 65536, 131072)


@dataclass(frozen=True)
class Grid:
    """Times by sequences and tokens of each; NaN where not measured."""

    seqs: Array
    tokens: Array
    us: Array

    def at(self, seqs: Array) -> "Grid":
        """For other numbers of sequences, at the same lengths."""
        us = np.full((len(seqs), len(self.tokens)), np.nan)
        for j, column in enumerate(self.us.T):
            known = np.isfinite(column)
            if known.sum() > 1:
                inside = seqs <= self.seqs[known].max()
                us[inside, j] = grids.read(self.seqs, column, seqs[inside])
        return Grid(seqs, self.tokens, us)

    def on_slower_memory(self, slowdown: float) -> "Grid":
        """What a call takes beyond one of the shortest context is KV read, at 1 ÷ `slowdown`."""
        known = np.isfinite(self.us)
        least = np.where(known, self.us, np.inf).min(axis=1, keepdims=True)
        return Grid(self.seqs, self.tokens, least + slowdown * (self.us - least))


class Calls:
    """Measured calls of one kind, by heads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        columns = table.columns
        pairs = np.unique(np.stack([columns["heads"], columns["kv_heads"]], 1), axis=0)
        self._pairs = {(int(heads), int(kv)) for heads, kv in pairs}
        self._seqs = np.unique(columns["batch"])
        self._tokens = np.unique(columns["tokens"])

    def grid(self, heads: int, kv_heads: int) -> Grid:
        """Times of these heads on a rank.

        Raises:
            SettingError: nothing near them was measured.
        """
        if (heads, kv_heads) in self._pairs:
            return self._measured(heads, kv_heads)
        for factor in range(2, kv_heads + 1):
            if heads % factor == 0 and kv_heads % factor == 0:
                part = heads // factor, kv_heads // factor
                if part in self._pairs:
                    grid = self._measured(*part)
                    seqs = self._seqs[self._seqs * factor <= grid.seqs.max()]
                    scaled = grid.at(seqs * factor)
                    return Grid(seqs, grid.tokens, scaled.us)
        return self._between(heads, kv_heads)

    def _between(self, heads: int, kv_heads: int) -> Grid:
        near = sorted(measured for measured, kv in self._pairs if kv == kv_heads)
        below, above = [h for h in near if h < heads], [h for h in near if h > heads]
        if not below or not above:
            known = ", ".join(f"{h}/{kv}" for h, kv in sorted(self._pairs))
            reason = f"is not within the measured heads of {self._table.file}: {known}"
            raise SettingError("heads per rank", f"{heads}/{kv_heads}", reason)
        low, high = self._measured(below[-1], kv_heads), self._measured(above[0], kv_heads)
        weight = np.log(heads / below[-1]) / np.log(above[0] / below[-1])
        us = np.exp((1 - weight) * np.log(low.us) + weight * np.log(high.us))
        return Grid(low.seqs, low.tokens, us)

    def _measured(self, heads: int, kv_heads: int) -> Grid:
        rows = self._table.where(heads=heads, kv_heads=kv_heads)
        us = np.full((len(self._seqs), len(self._tokens)), np.nan)
        i = np.searchsorted(self._seqs, rows.columns["batch"])
        us[i, np.searchsorted(self._tokens, rows.columns["tokens"])] = rows.us
        return Grid(self._seqs, self._tokens, grids.despiked(self._tokens, us))


@dataclass(frozen=True)
class Prefill:
    """Attention of one chunk in one layer.

    Attributes:
        tokens: measured prompts, with nothing before them.
        us: time of each.
        per_pair: microseconds for a new token and one before it.
        per_step: microseconds for a token before the chunk, at least; 0 where KV is split.
    """

    tokens: Array
    us: Array
    per_pair: float
    per_step: float

    def at(self, chunk: Array, past: Array) -> Array:
        """Time by chunk and past."""
        fresh = grids.read(self.tokens, self.us, chunk)[:, None]
        more = np.maximum(self.per_pair * chunk[:, None], self.per_step) * past[None, :]
        return np.asarray(fresh + more)


def prefill(calls: Calls, heads: Heads, *, splits_kv: bool) -> Prefill:
    """What is known of chunks of these heads."""
    grid = calls.grid(heads.heads, heads.kv_heads)
    known = np.isfinite(grid.us[0])
    tokens, us = grid.tokens[known], grid.us[0][known]
    long = tokens >= LONG_PROMPT_TOKENS
    pairs = tokens[long] ** 2 / 2
    per_pair = float(np.median((us[long] - us[0]) / pairs))
    return Prefill(tokens, us, per_pair, 0.0 if splits_kv else _per_step(calls))


def _per_step(calls: Calls) -> float:
    grid = calls.grid(1, 1)
    short, long = np.searchsorted(grid.tokens, ONE_WAVE_TOKENS)
    us, tokens = grid.us[0], grid.tokens
    return float((us[long] - us[short]) / (tokens[long] - tokens[short]))
