"""The hand-made kernel tables, changed here and there, for tests."""

from pathlib import Path
from typing import Any

from costs import CARD, MODEL
from omegaconf import OmegaConf

from servesim.cost.kernel_timer import KernelTimer
from servesim.cost.kernels import Kernels
from servesim.deployment import Deployment

YAML = Path(__file__).with_name("tiny_kernels.yaml")
TINY: Any = OmegaConf.to_container(OmegaConf.load(YAML))


def kernels(**changes: Any) -> Kernels:
    """Tiny, but for fields and, under their own names, tables."""
    fields = {name: value for name, value in TINY.items() if not name.startswith("_")}
    fields["tables"] = dict(fields["tables"])
    for name, value in changes.items():
        is_table = name in (*fields["tables"], "exchange")
        (fields["tables"] if is_table else fields)[name] = value
    return Kernels(**fields)


def timer(*, overlaps: bool = False, **changes: Any) -> KernelTimer:
    deployment = Deployment(MODEL, CARD, overlaps_host=overlaps)
    return kernels(**changes).bind(deployment)
