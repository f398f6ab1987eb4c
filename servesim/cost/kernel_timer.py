"""Kernel tables bound to a deployment: the arithmetic of one step.

A step is its kernels one after another, the host's work on it, and what is exposed of that in any
case. An engine that plans a step while the one before it runs hides the host behind the GPU: the
longer of both counts (`Deployment.overlaps_host`); any other waits for both. Beyond the largest
captured graph, kernels are launched one by one, and the GPU waits where it is the faster.

    step = gpu + host + exposed_us [+ eager_us]        gpu = dense + head + attention
    step = max(gpu, host) + exposed_us [+ eager_us]          + all-reduces + routed experts

A CUDA graph runs as many tokens as it was captured for: all kernels but attention are read at the
next captured size.

Decodes take no less than the longest one alone, a chunk no less than a decode of its context
(small ones are measured a few microseconds shorter, as they have no split KV to combine), and both
together no less than the decodes alone.

No step gets cheaper by a longer context, or by a chunk, a token or a draft more. By a sequence more
neither, but for what measured calls of more sequences take less: see servesim/cost/decode_grid.py.
"""

from bisect import bisect_left
from dataclasses import dataclass

from servesim.cost.batch import Batch, measured
from servesim.cost.decode_lines import Lines
from servesim.cost.durations import Progression, longer
from servesim.cost.fit_range import FitRange
from servesim.cost.kernel_tables import Tables
from servesim.cost.mixed_grid import MixedGrid
from servesim.deployment import Deployment
from servesim.records import Decodes, StepPlan, StepTime, Work
from servesim.units import PS_PER_US


@dataclass(frozen=True, slots=True)
class Host:
    """Work of the host, microseconds.

    Attributes:
        us: per step.
        us_per_seq: for each request of the batch.
        us_per_token: for each token of the batch.
        exposed_us: per step, even where the engine overlaps host and GPU.
        eager_us: likewise, of a step with more tokens than the largest captured graph.
        launch_us_per_layer: to launch the kernels of a layer in such a step; the GPU takes at least
            as long for all layers.
    """

    us: float = 0.0
    us_per_seq: float = 0.0
    us_per_token: float = 0.0
    exposed_us: float = 0.0
    eager_us: float = 0.0
    launch_us_per_layer: float = 0.0


class KernelTimer:
    """Step times of one deployment.

    Args:
        tables: of all kernels.
        host: its work per step.
        sizes: captured token counts, increasing.
        fit_range: what was measured.
        deployment: whose experts are routed, and whether it overlaps host and GPU.
    """

    def __init__(
        self,
        tables: Tables,
        host: Host,
        sizes: tuple[int, ...],
        fit_range: FitRange,
        deployment: Deployment,
    ) -> None:
        self._tables, self._host, self._sizes, self._range = tables, host, sizes, fit_range
        self._largest = sizes[-1] if sizes else 0
        self._overlaps = deployment.overlaps_host
        self._launch_ps = round(host.launch_us_per_layer * deployment.model.num_layers * PS_PER_US)
        self._experts_of = deployment.model.expected_active_experts
        self._tokens_ps: dict[int, int] = {}
        self._rows_ps: dict[int, int] = {}
        self._lines_of: dict[int, Lines] = {}
        self._alone = self._lines(1)
        self._of_decodes: dict[int, tuple[int, int, int]] = {}

    def step_time(self, plan: StepPlan) -> StepTime:
        """Time of one step, and the axes on which it lies outside the measured range."""
        if not plan.num_seqs:
            return StepTime(self._host_ps(0, 0) + self._exposed_ps(0))
        batch = measured(plan.work, plan.decodes, 1)
        gpu_ps = self._all_but_attention_ps(batch.tokens, batch.rows)
        gpu_ps += self._attention_ps(batch, plan.work)
        gpu_ps = max(gpu_ps, self._launched_ps(batch.tokens))
        host_ps = self._host_ps(batch.requests, batch.tokens)
        longer_ps = max(gpu_ps, host_ps) if self._overlaps else gpu_ps + host_ps
        return StepTime(longer_ps + self._exposed_ps(batch.tokens), self._range.outside(batch))

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """As long as the same line is the longest and the measured range keeps its verdict."""
        seqs, context, longest = decodes
        known = self._of_decodes.get(seqs)
        if known is None:
            known = self._of_decodes[seqs] = (
                self._all_but_attention_ps(seqs, seqs),
                self._host_ps(seqs, seqs),
                self._exposed_ps(seqs),
            )
        other_ps, host_ps, exposed_ps = known
        context = self._evened(decodes)
        base_ps, slope_ps, until = self._lines(seqs).at(context)
        first_ps, growth_ps = base_ps + slope_ps * context, slope_ps * seqs
        steps = min(steps, (until - context) // seqs + 1, self._range.steps_alike(decodes))
        if self._tables.one_measured:
            base_ps, slope_ps, until = self._alone.at(longest)
            alone = base_ps + slope_ps * longest, slope_ps
            first_ps, growth_ps, alike = longer((first_ps, growth_ps), alone, steps)
            steps = min(alike, until - longest + 1)
        first_ps += other_ps
        if launched_ps := self._launched_ps(seqs):
            first_ps, growth_ps, steps = longer((first_ps, growth_ps), (launched_ps, 0), steps)
        if self._overlaps:
            first_ps, growth_ps, steps = longer((first_ps, growth_ps), (host_ps, 0), steps)
        else:
            first_ps += host_ps
        outside = self._range.outside_decodes(decodes)
        return Progression(first_ps + exposed_ps, growth_ps, steps, outside)

    def parts_us(self, plan: StepPlan) -> dict[str, float]:
        """Microseconds of a step by part; of a deployment without overlap they add up to it.

        `host` is all of the host's work, whether it is hidden or not, and what the GPU waits for
        launches.
        """
        batch = measured(plan.work, plan.decodes, 1)
        tokens, rows = batch.tokens, batch.rows
        attention_ps = self._attention_ps(batch, plan.work)
        host_ps = self._host_ps(batch.requests, tokens) + self._exposed_ps(tokens)
        gpu_ps = self._all_but_attention_ps(tokens, rows) + attention_ps
        host_ps += max(0, self._launched_ps(tokens) - gpu_ps)
        return {
            "dense": self._dense_us(tokens),
            "head": self._head_us(rows),
            "attention": attention_ps / PS_PER_US,
            "all_reduce": self._all_reduce_us(tokens),
            "moe": self._moe_us(tokens),
            "host": host_ps / PS_PER_US,
        }

    def _host_ps(self, seqs: int, tokens: int) -> int:
        host = self._host
        return round((host.us + host.us_per_seq * seqs + host.us_per_token * tokens) * PS_PER_US)

    def _exposed_ps(self, tokens: int) -> int:
        eager_us = self._host.eager_us if tokens > self._largest else 0.0
        return round((self._host.exposed_us + eager_us) * PS_PER_US)

    def _launched_ps(self, tokens: int) -> int:
        """Least time of a step's kernels, for their launches."""
        return self._launch_ps if tokens > self._largest else 0

    def _all_but_attention_ps(self, tokens: int, rows: int) -> int:
        of_tokens = self._tokens_ps.get(tokens)
        if of_tokens is None:
            us = self._dense_us(tokens) + self._all_reduce_us(tokens) + self._moe_us(tokens)
            of_tokens = self._tokens_ps[tokens] = round(us * PS_PER_US)
        of_rows = self._rows_ps.get(rows)
        if of_rows is None:
            of_rows = self._rows_ps[rows] = round(self._head_us(rows) * PS_PER_US)
        return of_tokens + of_rows

    def _dense_us(self, tokens: int) -> float:
        return self._tables.dense.at(self._captured(tokens)) if tokens else 0.0

    def _head_us(self, rows: int) -> float:
        return self._tables.head.at(self._captured(rows)) if rows else 0.0

    def _all_reduce_us(self, tokens: int) -> float:
        table = self._tables.all_reduce
        return 0.0 if table is None or not tokens else table.at(self._captured(tokens))

    def _moe_us(self, tokens: int) -> float:
        table, captured = self._tables.moe, self._captured(tokens)
        return 0.0 if table is None else table.at(captured, self._experts_of(captured))

    def _captured(self, count: int) -> int:
        if count > self._largest or not count:
            return count
        return self._sizes[bisect_left(self._sizes, count)]

    def _attention_ps(self, b: Batch, work: tuple[Work, ...]) -> int:
        decodes = Decodes(b.seqs, b.context, b.longest)
        decodes_ps = self._decode_ps(decodes)
        if not b.chunk_tiles:
            return decodes_ps
        chunks = [(w.num_tokens, w.num_computed) for w in work if w.num_tokens != 1 + w.num_drafts]
        mixed, alone_us = self._tables.mixed_attention, [self._chunk_us(c) for c in chunks]
        # one call holds all of them and is launched once
        us = sum(alone_us) - (len(chunks) - 1) * self._tables.prefill_attention.least
        if mixed is None or not b.seqs:
            together_ps = round(us * PS_PER_US) + round(self._tables.decode_share * decodes_ps)
        else:  # beside the decodes, one of them takes longer
            beside_us = (self._beside_us(mixed, chunk, b) for chunk in chunks)
            longest_us = max(b - a for a, b in zip(alone_us, beside_us, strict=True))
            together_ps = round((us + max(longest_us, 0.0)) * PS_PER_US)
        return max(together_ps, decodes_ps)

    def _chunk_us(self, chunk: tuple[int, int]) -> float:
        context = sum(chunk)
        line = self._alone.at(context)
        as_decode_us = (line.base_ps + line.slope_ps * context) / PS_PER_US
        return max(self._tables.prefill_attention.at(*chunk), as_decode_us)

    def _beside_us(self, mixed: MixedGrid, chunk: tuple[int, int], b: Batch) -> float:
        beyond_us = self._tables.prefill_attention.beyond(chunk, mixed.last)
        return mixed.at(chunk, (b.seqs, b.context, b.longest)) + beyond_us

    def _decode_ps(self, decodes: Decodes) -> int:
        if not decodes.seqs:
            return 0
        context, longest = self._evened(decodes), decodes.longest
        line = self._lines(decodes.seqs).at(context)
        duration_ps = line.base_ps + line.slope_ps * context
        if not self._tables.one_measured:
            return duration_ps
        alone = self._alone.at(longest)
        return max(duration_ps, alone.base_ps + alone.slope_ps * longest)

    def _evened(self, decodes: Decodes) -> int:
        """The total context, and that by which the longest one counts more than once.

        All contexts of a run grow together, so the latter is constant; it is computed from whole
        numbers, lest it wander from step to step.
        """
        seqs, context, longest = decodes
        tables = self._tables
        if seqs < tables.whole_from_seqs or not tables.seqs_equivalent:
            return context
        return context + int(tables.seqs_equivalent * ((longest * seqs - context) / seqs))

    def _lines(self, seqs: int) -> Lines:
        lines = self._lines_of.get(seqs)
        if lines is None:
            grid = self._tables.decode_attention
            lines = self._lines_of[seqs] = Lines(lambda context: grid.at(seqs, context))
        return lines
