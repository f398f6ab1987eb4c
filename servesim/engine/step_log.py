"""The steps of a simulation, a row per step or per run of them, counted at the end.

While the simulation runs, a run of steps costs a row of numbers; sums and the gaps between
tokens are taken from the rows afterwards, many steps at once.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np

from servesim.gaps import Gaps, Ints
from servesim.records import StepTotals
from servesim.scheduler.fast_lane import ROW, pack_row

_ROWS_AT_ONCE = 50_000  # bounds the memory that counting takes


class _Steps(NamedTuple):
    """Some of the steps one by one: durations, requests that just decode, requests, KV blocks."""

    duration_ps: Ints
    decodes: Ints
    seqs: Ints
    blocks: Ints


class StepLog:
    """Rows of (steps, first duration, increment, decodes, requests, tokens, blocks).

    Attributes:
        num_steps: steps so far.
        num_skipped: of them, those that were not looked at.
    """

    def __init__(self) -> None:
        self.num_steps = self.num_skipped = 0
        self.rows = bytearray()  # packed: small, nothing for the garbage collector, quick to add to
        self.taken = array("q")  # by each step of each row
        self._outside: Counter[tuple[str, ...]] = Counter()
        self._outside_ps = 0

    def add_step(self, duration_ps: int, decodes: int, seqs: int, tokens: int, blocks: int) -> None:
        """One step that was looked at; `blocks` with those it took."""
        self.num_steps += 1
        self.rows += pack_row(1, duration_ps, 0, decodes, seqs, tokens, blocks)
        self.taken.append(0)

    def add_run(
        self, first_ps: int, increment_ps: int, seqs: int, blocks: int, taken: Sequence[int]
    ) -> None:
        """Decode steps of `seqs` requests, as many as `taken` has entries.

        Args:
            first_ps: duration of the first one.
            increment_ps: by which each takes longer than the one before.
            seqs: requests.
            blocks: KV blocks held before the first one.
            taken: blocks that each of them took.
        """
        steps = len(taken)
        self.num_steps += steps
        self.rows += pack_row(steps, first_ps, increment_ps, seqs, seqs, seqs, blocks)
        self.taken.extend(taken)

    def add_outside(self, axes: tuple[str, ...], steps: int, duration_ps: int) -> None:
        """The last `steps` steps, so long together, lie outside the fitted range on these axes."""
        self._outside[axes] += steps
        self._outside_ps += duration_ps

    def totals(self) -> StepTotals:
        """Sums over all steps, in whole numbers of any size."""
        busy = seq_ps = block_ps = max_blocks = 0
        steps, _, _, _, seqs, tokens, _ = (column.tolist() for column in _columns(self.rows))
        for part in self._parts():
            duration = part.duration_ps.tolist()
            busy += sum(duration)
            seq_ps += sum(map(mul, part.seqs.tolist(), duration))
            block_ps += sum(map(mul, part.blocks.tolist(), duration))
            max_blocks = max(max_blocks, int(part.blocks.max()))
        by_axis: Counter[str] = Counter()
        for axes, count in self._outside.items():
            by_axis.update(dict.fromkeys(axes, count))
        return StepTotals(
            steps=self.num_steps,
            busy_ps=busy,
            tokens=sum(map(mul, tokens, steps)),
            seqs=sum(map(mul, seqs, steps)),
            seq_ps=seq_ps,
            block_ps=block_ps,
            max_blocks=max_blocks,
            max_seqs=max(seqs, default=0),
            outside_any=sum(self._outside.values()),
            outside_ps=self._outside_ps,
            outside=dict(by_axis),
            skipped_steps=self.num_skipped,
        )

    def gaps(self, others: Counter[int]) -> Gaps:
        """Gaps of requests that just decode, a step's duration each, and those of `others`."""
        gaps = Gaps.of(others)
        for part in self._parts():
            decoding = part.decodes > 0
            new = Gaps(part.duration_ps[decoding], part.decodes[decoding])
            gaps = Gaps(
                np.concatenate([gaps.values_ps, new.values_ps]),
                np.concatenate([gaps.counts, new.counts]),
            )
        return gaps

    def _parts(self) -> Iterator[_Steps]:
        """The steps one by one, some rows at a time."""
        taken_before = 0
        size = ROW.size * _ROWS_AT_ONCE
        for begin in range(0, len(self.rows), size):
            columns = _columns(self.rows[begin : begin + size])
            steps, first, increment, decodes, seqs, _, blocks = columns
            count = int(steps.sum())
            firsts = np.cumsum(steps) - steps
            step = np.arange(count) - np.repeat(firsts, steps)
            taken = np.array(self.taken[taken_before : taken_before + count])
            taken_before += count
            sums = np.cumsum(taken)
            before = np.repeat(sums[firsts] - taken[firsts], steps)
            yield _Steps(
                duration_ps=np.repeat(first, steps) + np.repeat(increment, steps) * step,
                decodes=np.repeat(decodes, steps),
                seqs=np.repeat(seqs, steps),
                blocks=np.repeat(blocks, steps) + sums - before,
            )


def _columns(rows: bytearray) -> Ints:
    """Packed rows by column."""
    return np.frombuffer(bytes(rows), np.int64).reshape(-1, ROW.size // 8).T
