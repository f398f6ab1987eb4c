"""A fitted cost bound to a model: the arithmetic of one step.

Called once per simulated step with up to a few hundred requests, so: one loop over the work,
local names, and Python floats, which also give the same bits on every machine.
"""

from typing import NamedTuple

from servesim.cost.batch import Batch, measured, only_decodes
from servesim.cost.coefficients import Coefficients, Curve
from servesim.cost.durations import Progression
from servesim.cost.fit_range import NO_LIMIT, FitRange
from servesim.records import Decodes, StepPlan, StepTime
from servesim.units import PS_PER_US, US_PER_S, seconds_to_ps

ALL_REDUCES_PER_LAYER = 2  # after the attention output and after the MLP (Megatron-LM)


class _Line(NamedTuple):
    """Time of a decode step: base + slope · context, for contexts up to `until_context`."""

    base_ps: int
    slope_ps: int
    until_context: int


class FittedTimer:
    """Step time = layers × (dense + attention + all-reduces) + embedding and norm + head + host."""

    def __init__(self, coefficients: Coefficients, num_layers: int, fit_range: FitRange) -> None:
        self._c = coefficients
        self.num_layers = num_layers
        self._range = fit_range
        self._tile_queries = coefficients.mixed_attention.tile_queries
        self._decode_rest_us: dict[int, float] = {}
        self._dense = Curve(coefficients.dense.knots_tokens, coefficients.dense.us)
        # a token of a decode's context costs whole picoseconds, so that a run is a progression
        c, layer_ps = coefficients.decode_attention, num_layers * PS_PER_US
        self._token_ps = round(layer_ps * c.us_per_kv_token)
        self._first_token_ps = round(layer_ps * c.us_per_first_kv_token)
        self._first_tokens = int(c.first_kv_tokens)
        self._head = Curve(coefficients.head.knots_rows, coefficients.head.us)

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time of one step, and the axes on which it lies outside the fitted range."""
        c = self._c
        if not plan.num_seqs:
            return StepTime(seconds_to_ps(c.host.us / US_PER_S))
        batch = measured(plan.work, plan.decodes, self._tile_queries)
        if batch.tokens == batch.rows == batch.seqs:
            line = self._decode_line(Decodes(batch.seqs, batch.context, batch.longest))
            duration_ps = line.base_ps + line.slope_ps * batch.context
        else:
            us = self._rest_us(batch) + self.num_layers * self._attention_us(batch)
            duration_ps = seconds_to_ps(us / US_PER_S)
        return StepTime(duration_ps, self._range.outside(batch))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """As long as the attention keeps its slope and the fitted range its verdict."""
        seqs, context, _ = decodes
        line = self._decode_line(decodes)
        if context <= line.until_context:
            steps = min(steps, (line.until_context - context) // seqs + 1)
        steps = min(steps, self._range.steps_alike(decodes))
        outside = self._range.outside_decodes(decodes)
        first = line.base_ps + line.slope_ps * context
        return Progression(first, line.slope_ps * seqs, steps, outside)

    def _decode_line(self, decodes: Decodes) -> _Line:
        """Step time of decodes as base + slope · context, both in whole picoseconds.

        All contexts of a run grow together, so its unevenness is constant; it is computed from
        whole numbers, lest its last bit wander from step to step.
        """
        c, (seqs, context, longest) = self._c.decode_attention, decodes
        us = c.us + c.us_per_seq * seqs
        if seqs >= c.whole_from_seqs:
            us += c.us_if_whole + c.us_per_uneven_token * ((longest * seqs - context) / seqs)
        rest_us = self._decode_rest_us.get(seqs)
        if rest_us is None:
            rest_us = self._decode_rest_us[seqs] = self._rest_us(only_decodes(decodes))
        base_ps = seconds_to_ps((rest_us + self.num_layers * us) / US_PER_S)
        slope_ps, first_ps = self._token_ps, self._first_token_ps
        if context <= self._first_tokens:
            return _Line(base_ps, slope_ps + first_ps, self._first_tokens)
        return _Line(base_ps + first_ps * self._first_tokens, slope_ps, NO_LIMIT)

    def _rest_us(self, batch: Batch) -> float:
        """A step without its attention, microseconds."""
        c, tokens = self._c, batch.tokens
        layer_us = self.dense_us(tokens)
        layer_us += ALL_REDUCES_PER_LAYER * (c.link.us + c.link.us_per_token * tokens)
        us = self.num_layers * layer_us + c.once.us + c.once.us_per_token * tokens
        if batch.rows:
            us += self.head_us(batch.rows)
        return us + c.host.us + c.host.us_per_seq * batch.requests

    def attention_us(self, plan: StepPlan) -> float:
        """Attention of one layer, one call for the whole batch, microseconds."""
        return self._attention_us(measured(plan.work, plan.decodes, self._tile_queries))

    def _attention_us(self, b: Batch) -> float:
        if not b.chunk_tiles and not b.drafts:
            return self.decode_attention_us(b.seqs, b.context, b.longest)
        longest = max(b.longest, b.chunk_longest)
        launched = b.requests * max(1, b.most_tiles)
        mixed_us = self.mixed_attention_us(
            (launched, b.chunk_tiles, b.tiled_context), (b.seqs, b.context), longest
        )
        # small mixed calls are up to 5 µs faster than decodes of the same contexts (nothing to
        # combine); without the maximum, a step would get shorter by a token more in it
        as_decodes_us = self.decode_attention_us(b.requests, b.context + b.chunk_context, longest)
        return max(as_decodes_us, mixed_us)

    def dense_us(self, tokens: int) -> float:
        """One layer without attention, microseconds."""
        dense = self._c.dense
        tile = dense.tile_tokens
        if tokens > tile:
            whole = -(-tokens // tile) * tile
            return self._dense.at(tokens + dense.tile_share * (whole - tokens))
        return self._dense.at(tokens)

    def head_us(self, rows: int) -> float:
        """LM head and sampler, microseconds."""
        return self._head.at(rows)

    def decode_attention_us(self, seqs: int, context: float, longest: float) -> float:
        """Attention of one layer for decodes of one token, microseconds.

        Args:
            seqs: decodes.
            context: tokens of context of all of them.
            longest: of the longest one.
        """
        if not seqs:
            return 0.0
        c = self._c.decode_attention
        us = c.us + c.us_per_seq * seqs + c.us_per_kv_token * context
        us += c.us_per_first_kv_token * min(context, self._first_tokens)
        if seqs >= c.whole_from_seqs:
            us += c.us_if_whole + c.us_per_uneven_token * (longest - context / seqs)
        return us

    def mixed_attention_us(
        self, chunks: tuple[int, int, float], decodes: tuple[int, float], longest: float
    ) -> float:
        """Attention of one layer for chunks, and decodes beside them, in one call, microseconds.

        Args:
            chunks: launched tiles, tiles of all chunks, and the sum over these of the mean KV that
                each walks.
            decodes: how many, and the tokens of context of all of them.
            longest: context of the longest chunk or decode.
        """
        c = self._c.mixed_attention
        launched, tiles, tiled_context = chunks
        seqs, context = decodes
        task = c.task_us + c.task_us_per_kv_token * longest
        total = c.us_per_tile * tiles + c.us_per_tile_kv_token * tiled_context
        total += c.us_per_launched_tile * launched
        total += c.us_per_seq * seqs + c.us_per_kv_token * context
        if seqs > c.spill_seqs and context > c.spill_kv_tokens:
            spilled = (context - c.spill_kv_tokens) * (1 - c.spill_seqs / seqs)
            total += c.us_per_spilled_kv_token * spilled
        return max(task, total + c.ragged_share * task)
