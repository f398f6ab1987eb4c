"""Sarathi-Serve: stall-free batches of decodes and chunks of prompts (OSDI 2024)."""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.scheduler.base import EngineSetup
from servesim.scheduler.sarathi_scheduler import SarathiScheduler


@dataclass(frozen=True, slots=True)
class Sarathi:
    """Engine settings under Sarathi-Serve's own names.

    Attributes:
        chunk_size: tokens per step, decodes included.
        max_num_seqs: running requests.
    """

    chunk_size: int = 512
    max_num_seqs: int = 128

    def __post_init__(self) -> None:
        checks.whole("chunk_size", self.chunk_size, at_least=1)
        checks.whole("max_num_seqs", self.max_num_seqs, at_least=1)

    @property
    def overlaps_host(self) -> bool:
        """No: a batch is chosen when the one before it is over."""
        return False

    def start(self, setup: EngineSetup, stepwise: bool = False) -> SarathiScheduler:
        """A scheduler with empty queues; with `stepwise`, one without steady steps.

        Raises:
            SettingError: `chunk_size` is below `max_num_seqs`: decodes do not look at the budget,
                and one that is overdrawn gives the engine's prompts negative tokens.
        """
        if self.chunk_size < self.max_num_seqs:
            raise SettingError(
                "chunk_size",
                self.chunk_size,
                f"must be at least max_num_seqs; nearest: {self.max_num_seqs}, or "
                f"max_num_seqs={self.chunk_size}",
            )
        return SarathiScheduler(setup, self.chunk_size, self.max_num_seqs, stepwise)

    def describe(self, setup: EngineSetup) -> str:
        """Engine and limits in one line."""
        return (
            f"Sarathi-Serve scheduler; chunk_size {self.chunk_size}, "
            f"max_num_seqs {self.max_num_seqs}, max_model_len {setup.max_model_len}; "
            "victims recomputed; no prefix cache"
        )
