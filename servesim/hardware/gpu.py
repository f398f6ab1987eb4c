"""A GPU as a roofline sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError

MEMORY_SOURCES = ("datasheet", "measured")


@dataclass(frozen=True, slots=True)
class GPU:
    """Figures of one accelerator, those of its data sheet but for the memory.

    Attributes:
        name: as the vendor writes it.
        memory_gib: memory that the driver or the runtime reports, GiB.
        memory_bandwidth_gb_s: GB/s (10**9).
        dense_tflops: peak dense matrix throughput by dtype, TFLOP/s, without sparsity.
        link_gb_s: bandwidth to the other ranks of a tensor-parallel group, GB/s per direction.
        memory_source: where `memory_gib` is from: "measured" (the driver or the runtime reported
            it) or "datasheet" (the nominal size, of which some is not usable).
    """

    name: str
    memory_gib: float
    memory_bandwidth_gb_s: float
    dense_tflops: Mapping[str, float]
    link_gb_s: float
    memory_source: str = "datasheet"

    def __post_init__(self) -> None:
        for field in ("memory_gib", "memory_bandwidth_gb_s", "link_gb_s"):
            checks.positive(field, getattr(self, field))
        checks.size_gib("memory_gib", self.memory_gib)
        checks.choice("memory_source", self.memory_source, MEMORY_SOURCES)
        if not isinstance(self.dense_tflops, Mapping):
            reason = "must be a mapping {dtype: TFLOP/s}"
            raise SettingError("dense_tflops", self.dense_tflops, reason)
        for dtype, tflops in self.dense_tflops.items():
            checks.positive(f"dense_tflops.{dtype}", tflops)

    def tflops(self, dtype: str) -> float:
        """Peak for `dtype`; fp16 and bf16 run at one rate, nvfp4 at that of fp4."""
        alike = {"fp16": "bf16", "bf16": "fp16", "nvfp4": "fp4"}
        for key in (dtype, alike.get(dtype, dtype)):
            if key in self.dense_tflops:
                return self.dense_tflops[key]
        raise UnknownChoiceError(f"dtype for {self.name}", dtype, self.dense_tflops)
