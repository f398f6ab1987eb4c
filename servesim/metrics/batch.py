"""Batch size, KV use and how busy the engine was."""

from dataclasses import dataclass

from servesim.metrics.base import Row, duration_s
from servesim.records import RunRecord
from servesim.units import ps_to_seconds


@dataclass(frozen=True, slots=True)
class Batch:
    """Means are over the time in which steps ran."""

    def measure(self, run: RunRecord) -> Row:
        """Columns of the batch and of the blocks held by requests."""
        totals, seconds = run.totals, duration_s(run)
        busy = totals.busy_ps
        return {
            "steps": totals.steps,
            "busy_fraction": ps_to_seconds(busy) / seconds if seconds else None,
            "batch_size_mean": totals.seq_ps / busy if busy else None,
            "batch_size_max": totals.max_seqs,
            "tokens_per_step": totals.tokens / totals.steps if totals.steps else None,
            "kv_use_mean": totals.block_ps / busy / run.kv_blocks if busy else None,
            "kv_use_max": totals.max_blocks / run.kv_blocks,
        }
