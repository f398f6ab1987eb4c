"""Routed experts of a step, at the model's own sizes: they are measured or they are not."""

import numpy as np

from servesim.errors import SettingError
from servesim.model.mlp import MoE
from validation.fit.kernels import grids
from validation.sources.aiconfigurator import Table
from validation.sources.tables import Array


def layer_us(table: Table, moe: MoE, hidden: int, tp: int, tokens: Array) -> Array:
    """One layer's experts, split over `tp` ranks by width, for so many tokens.

    Routing was measured even and by power laws. The flattest power law stands for trained routers:
    even routing reaches every expert of 128 with 16 tokens, uniform random routing 64 %, the power
    law about half.

    Raises:
        SettingError: experts of these sizes were not measured.
    """
    wanted = {
        "hidden_size": hidden,
        "inter_size": moe.intermediate_size,
        "topk": moe.experts_per_token,
        "num_experts": moe.num_experts,
        "moe_tp_size": tp,
        "moe_ep_size": 1,
    }
    rows = table.where(**wanted)
    if not len(rows.us):
        sizes = ", ".join(f"{name} {value}" for name, value in wanted.items())
        raise SettingError("model", sizes, f"was not measured in {table.file}")
    skews = sorted({float(skew) for skew in rows.columns["skewed"]})
    rows = rows.where(skewed=next((skew for skew in skews if skew > 0), skews[0]))
    measured, first = np.unique(rows.columns["num_tokens"], return_index=True)
    us = grids.never_falling(grids.despiked(measured, rows.us[first]))
    return grids.read(measured, us, tokens)
