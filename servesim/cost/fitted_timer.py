"""A fitted cost bound to a model: the arithmetic of one step.

Called once per simulated step with up to a few hundred requests, so: one loop over the work,
local names, and Python floats, which also give the same bits on every machine.
"""

from collections.abc import Mapping
from typing import NamedTuple

from servesim.cost.coefficients import Coefficients, Curve
from servesim.cost.durations import Progression
from servesim.records import Decodes, StepPlan, StepTime, Work
from servesim.units import PS_PER_US, US_PER_S, seconds_to_ps

AXES = (
    "tokens",
    "sampled_rows",
    "decode_seqs",
    "kv_tokens_per_decode",
    "prefill_past",
    "kv_tokens",
)


NO_LIMIT = 2**62  # tokens
ALL_REDUCES_PER_LAYER = 2  # after the attention output and after the MLP (Megatron-LM)


class Batch(NamedTuple):
    """What the cost of a step depends on.

    Attributes:
        tokens: of the whole batch.
        rows: sampled, drafts included.
        seqs: decodes.
        context: tokens of context of all decodes, this step's included.
        longest: context of the longest decode.
        drafts: whether any decode verifies drafts.
        chunk_tiles: query tiles of all prefill chunks.
        most_tiles: of one request.
        requests: decodes and chunks.
        tiled_context: sum over tiles of the mean context that each walks.
        chunk_context: tokens of context of all chunks.
        chunk_longest: context at the end of the longest chunk.
        past: of the chunk with the most KV before it.
    """

    tokens: int
    rows: int
    seqs: int
    context: int
    longest: int
    drafts: bool
    chunk_tiles: int
    most_tiles: int
    requests: int
    tiled_context: float
    chunk_context: int
    chunk_longest: int
    past: int


class _Line(NamedTuple):
    """Time of a decode step: base + slope · context, for contexts up to `until_context`."""

    base_ps: int
    slope_ps: int
    until_context: int


class FittedTimer:
    """Step time = layers × (dense + attention + all-reduces) + embedding and norm + head + host."""

    def __init__(
        self,
        coefficients: Coefficients,
        num_layers: int,
        ranges: Mapping[str, tuple[float, float]],
    ) -> None:
        self._c = coefficients
        self.num_layers = num_layers
        self._ranges = tuple((axis, *ranges[axis]) for axis in AXES)
        self._dense = Curve(coefficients.dense.knots_tokens, coefficients.dense.us)
        self._decode_rest_us: dict[int, float] = {}
        self._head = Curve(coefficients.head.knots_rows, coefficients.head.us)

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time of one step, and the axes on which it lies outside the fitted range."""
        c = self._c
        if not plan.num_seqs:
            return StepTime(seconds_to_ps(c.host.us / US_PER_S))
        batch = self._measure(plan.work, plan.decodes)
        if batch.tokens == batch.rows == batch.seqs:
            line = self._decode_line(Decodes(batch.seqs, batch.context, batch.longest))
            return StepTime(line.base_ps + line.slope_ps * batch.context, self._outside(batch))
        us = self._rest_us(batch) + self.num_layers * self._attention_us(batch)
        return StepTime(seconds_to_ps(us / US_PER_S), self._outside(batch))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """As long as the attention keeps its slope and the fitted range its verdict."""
        seqs, context, _ = decodes
        line = self._decode_line(decodes)
        if context <= line.until_context:
            steps = min(steps, (line.until_context - context) // seqs + 1)
        outside = self._outside_of(decodes)
        if self._outside_of(decodes.later(steps - 1)) != outside:
            same, other = 1, steps  # bisect: the first step differs from the last one
            while other - same > 1:
                middle = (same + other) // 2
                if self._outside_of(decodes.later(middle - 1)) == outside:
                    same = middle
                else:
                    other = middle
            steps = same
        first = line.base_ps + line.slope_ps * context
        return Progression(first, line.slope_ps * seqs, steps, outside)

    def _decode_line(self, decodes: Decodes) -> _Line:
        """Step time of decodes as base + slope · context, both in whole picoseconds.

        All contexts of a run grow together, so its unevenness is constant; it is computed from
        whole numbers, lest its last bit wander from step to step.
        """
        c, (seqs, context, longest) = self._c.decode_attention, decodes
        us_per_token, until = c.us_per_kv_token, NO_LIMIT
        us = c.us + c.us_per_seq * seqs
        if context <= c.first_kv_tokens:
            us_per_token += c.us_per_first_kv_token
            until = int(c.first_kv_tokens)
        else:
            us += c.us_per_first_kv_token * c.first_kv_tokens
        if seqs >= c.whole_from_seqs:
            us += c.us_if_whole + c.us_per_uneven_token * ((longest * seqs - context) / seqs)
        rest_us = self._decode_rest_us.get(seqs)
        if rest_us is None:
            batch = Batch(seqs, seqs, seqs, 0, 0, False, 0, 0, seqs, 0.0, 0, 0, 0)
            rest_us = self._decode_rest_us[seqs] = self._rest_us(batch)
        base_ps = seconds_to_ps((rest_us + self.num_layers * us) / US_PER_S)
        return _Line(base_ps, round(self.num_layers * us_per_token * PS_PER_US), until)

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
        return self._attention_us(self._measure(plan.work, plan.decodes))

    def _measure(self, work: tuple[Work, ...], decodes: Decodes) -> Batch:
        """A request with one token and its drafts is a decode, any other a prefill chunk."""
        tile = self._c.mixed_attention.tile_queries
        seqs, context, longest = decodes
        tokens = rows = seqs
        chunk_tiles = most_tiles = chunk_context = chunk_longest = past = 0
        tiled_context = 0.0
        drafts = False
        for _, num_tokens, num_computed, num_drafts, samples in work:
            tokens += num_tokens
            end = num_computed + num_tokens
            if samples:
                rows += 1 + num_drafts
            if num_tokens == 1 + num_drafts:
                seqs += 1
                context += end
                if end > longest:
                    longest = end
                drafts = drafts or num_drafts > 0
            else:
                tiles = (num_tokens + tile - 1) // tile
                chunk_tiles += tiles
                if tiles > most_tiles:
                    most_tiles = tiles
                tiled_context += tiles * (num_computed + num_tokens / 2)
                chunk_context += end
                if num_computed > past:
                    past = num_computed
                if end > chunk_longest:
                    chunk_longest = end
        return Batch(
            tokens, rows, seqs, context, longest, drafts, chunk_tiles, most_tiles,
            decodes.seqs + len(work),
            tiled_context, chunk_context, chunk_longest, past,
        )  # fmt: skip

    def _attention_us(self, b: Batch) -> float:
        decode_us = self.decode_attention_us(b.seqs, b.context, b.longest)
        if not b.chunk_tiles and not b.drafts:
            return decode_us
        launched = b.requests * max(1, b.most_tiles)
        mixed_us = self.mixed_attention_us(
            (launched, b.chunk_tiles, b.tiled_context),
            (b.seqs, b.context),
            max(b.longest, b.chunk_longest),
        )
        # small mixed calls are a few microseconds faster than their decodes alone (nothing to
        # combine); without the maximum, a step would get shorter by adding a chunk to it
        return max(decode_us, mixed_us)

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
        us += c.us_per_first_kv_token * min(context, c.first_kv_tokens)
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

    def _outside_of(self, decodes: Decodes) -> tuple[str, ...]:
        seqs, context, longest = decodes
        return self._outside(
            Batch(seqs, seqs, seqs, context, longest, False, 0, 0, seqs, 0.0, 0, 0, 0)
        )

    def _outside(self, b: Batch) -> tuple[str, ...]:
        """Axes above their range, or below it; a step without any of what an axis counts is in."""
        mean = b.context / b.seqs if b.seqs else 0.0
        measures = (b.tokens, b.rows, b.seqs, mean, b.past, b.context + b.chunk_context)
        return tuple(
            axis
            for (axis, low, high), value in zip(self._ranges, measures, strict=True)
            if value > high or 0 < value < low
        )
