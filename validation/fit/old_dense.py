"""Dense layers, head and experts of LLMServingSim's older profiles, as tables of a kernel cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servesim.deployment import Deployment
from validation.fit import curves
from validation.fit.check import Part
from validation.sources.llmservingsim_v0 import (
    DENSE_MLP,
    EXPERT,
    HEAD,
    ONCE,
    PER_LAYER,
    ROUTER,
    Profile,
)
from validation.sources.tables import Array

# most matrix kernels take 128 rows at a time: a stair, from 128 to 136 and from 256 to 264
KNOTS = (
    *(1, 8, 16, 32, 48, 64, 96, 128, 136, 160, 192, 224, 256, 264, 320, 384, 448, 512),
    *(640, 768, 1024, 1280, 1536, 1792, 2048),
)
HEAD_KNOTS = (1, 16, 64, 128, 136, 192, 256)
EXPERT_KNOTS = (1, 16, 32, 64, 128, 192, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Dense:
    """Levelled curves of what depends on tokens or rows alone.

    Attributes:
        layer_us: measured microseconds of a layer without attention and experts, by token.
        once_us: measured microseconds of embedding and final norm, by token.
        head_us: measured microseconds of the LM head, by row.
        tables: `dense`, `head` and `moe` of a kernel cost.
        errors: held-out error of dense layers and head.
    """

    layer_us: Array
    once_us: Array
    head_us: Array
    tables: dict[str, Any]
    errors: list[Part]

    def at(self, table: str, axis: str, x: Array) -> Array:
        """A table at `x`, linear between its knots."""
        found = self.tables[table]
        return np.asarray(np.interp(x, found[axis], found["us"]))


def fit_dense(profile: Profile, target: Deployment) -> Dense:
    """Curves that never fall, on points that are not held out."""
    tokens, layers = profile.tokens, target.model.num_layers
    # an expert's activation is counted with the expert
    names = tuple(k for k in PER_LAYER if not (profile.is_moe and k == "act_fn"))
    layer_us = profile.sum_us(names + (ROUTER if profile.is_moe else DENSE_MLP))
    once_us, head_us = profile.sum_us(ONCE), profile.sum_us(HEAD)
    rows = tokens <= HEAD_KNOTS[-1]
    dense = _curve(tokens, layers * layer_us + once_us, KNOTS)
    head = _curve(tokens[rows], head_us[rows], HEAD_KNOTS)
    tables = {
        "dense": {"tokens": dense[0], "us": dense[1]},
        "head": {"rows": head[0], "us": head[1]},
        "moe": _experts(profile, target) if profile.is_moe else None,
    }
    made = Dense(layer_us, once_us, head_us, tables, [])
    parts = (
        ("dense_layers", "tokens", "dense", tokens, layers * layer_us + once_us),
        ("lm_head", "rows", "head", tokens[rows], head_us[rows]),
    )
    for name, axis, table, x, us in parts:
        held = curves.every_fifth(len(x))
        error = made.at(table, axis, x[held]) / us[held] - 1
        worst = x[held][int(np.abs(error).argmax())]
        made.errors.append(Part(name, error, f"{axis}={worst:g}"))
    return made


def _curve(axis: Array, us: Array, knots: tuple[int, ...]) -> tuple[Array, Array]:
    used = ~curves.every_fifth(len(axis))
    at = curves.knots_within(knots, axis)
    return at, curves.fit_curve(axis[used], us[used], at)


def _experts(profile: Profile, target: Deployment) -> dict[str, Any]:
    """Experts one after another, each with its share of the tokens.

    The profile holds whole experts, also at tp 4: w1 of Mixtral takes 40 µs, what 117 MB take at
    2.9 TB/s. A rank that holds an nth of every expert's width is given an nth of that time.
    """
    routed = next(m for layer in target.model.all_layers if layer.mlp and (m := layer.mlp.experts))
    names = (*EXPERT, "act_fn")
    knots, us = _curve(profile.tokens, profile.sum_us(names), EXPERT_KNOTS)
    experts = np.arange(1, routed.num_experts + 1, dtype=float)
    tokens = np.array(EXPERT_KNOTS, dtype=float)
    share = tokens[:, None] * routed.experts_per_token / experts
    each_us = np.interp(share, knots, us)
    per_rank = target.model.num_layers * experts * each_us / target.tp
    levelled = np.maximum.accumulate(np.maximum.accumulate(per_rank, axis=0), axis=1)
    return {"tokens": tokens, "experts": experts, "us": levelled}
