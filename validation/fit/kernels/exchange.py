"""What experts split over data-parallel ranks add to a step: bringing tokens to them and back.

No profile holds it. Of a ring of R ranks, an all-gather of T tokens takes R − 1 turns of T / R
tokens, and so does the reduce-scatter behind the experts. Latency and bandwidth of the link are
those that the source states of the machine that its runs were measured on.
"""

import json
from pathlib import Path
from typing import Any

from servesim.deployment import Deployment
from servesim.errors import TraceError
from validation.fit.kernels.shapes import ACTIVATION_BYTES
from validation.fit.result import rounded

RANKS = (2, 4, 8)
TOKENS = (1, 16384)  # the table is a line
_PER_GB_S = 1e3  # bytes per microsecond
_PER_US = 1e3  # nanoseconds


def exchange(root: Path, gpu: str, model: str, target: Deployment) -> tuple[dict[int, Any], str]:
    """The table `exchange` of `servesim.cost.kernel_tables`, and where it is from.

    Empty where the model has no routed experts or the source describes no machine.

    Raises:
        TraceError: the description lacks the link.
    """
    layers = sum(
        layer.mlp is not None and layer.mlp.experts is not None for layer in target.model.all_layers
    )
    path = root / "bench" / "examples" / gpu / model / "config.json"
    if not layers or not path.is_file():
        return {}, "not known"
    described = json.loads(path.read_text())
    try:
        gb_s, latency_ns = float(described["link_bw"]), float(described["link_latency"])
    except (KeyError, TypeError, ValueError):
        raise TraceError(str(path), None, "has no numbers 'link_bw' and 'link_latency'") from None
    token_us = target.model.hidden_size * ACTIVATION_BYTES / (gb_s * _PER_GB_S)
    tables = {}
    for ranks in RANKS:
        turns = 2 * layers * (ranks - 1)
        us = [turns * (latency_ns / _PER_US + tokens / ranks * token_us) for tokens in TOKENS]
        tables[ranks] = {"tokens": list(TOKENS), "us": rounded(us)}
    origin = f"{gb_s:g} GB/s and {latency_ns / _PER_US:g} us per turn, stated in {path.name}"
    return tables, f"{origin} of the measured run, not measured"
