"""KV memory that requests hold and do not use."""

from dataclasses import dataclass
from typing import ClassVar

from servesim.metrics.base import Row
from servesim.records import RunRecord


@dataclass(frozen=True, slots=True)
class KVWaste:
    """Reserved slots and the ends of last blocks: what the PagedAttention paper counts as waste.

    Free memory is not among it, so fragmentation between reservations is not either.
    """

    needs_steps: ClassVar[bool] = True

    def measure(self, run: RunRecord) -> Row:
        """`kv_waste` is the share of held token slots without a token's KV, weighted by time.

        The sum over steps of unused slots × duration, over that of held slots × duration. A token
        that a step computes counts as there from the step's start. None where nothing was held.
        """
        held = sum(step.kv_blocks_used * step.duration_ps for step in run.steps) * run.block_size
        unused = sum(step.kv_slots_unused * step.duration_ps for step in run.steps)
        return {"kv_waste": unused / held if held else None}
