"""Kernel tables of vLLM operator profiles (LLMServingSim): measured, and hardly interpolated.

The attention grid of a profile has two interleaved parts. Calls whose lengths are powers of two
are a whole grid, and most of it is the tables. The others (lengths that grow by half) lie between
its points: they, and the points of the grid that are left out, are what the tables are checked on.
A profile without the second part (RTX 4090) is checked on short contexts only.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from servesim.cost.kernel_timer import KernelTimer
from servesim.deployment import Deployment
from validation.fit import attention as fitted_attention
from validation.fit.check import Part, plan_of
from validation.fit.kernels import grids
from validation.fit.rows import Mask
from validation.sources.llmservingsim import Profile
from validation.sources.tables import Array

MIXED_PASTS = (0, 128, 512, 1024, 2048, 4096, 8192, 16384)
MIXED_CONTEXTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Calls:
    """Attention of one layer: coordinates and time of each measured call."""

    chunk: Array
    past: Array
    seqs: Array
    kv: Array
    us: Array

    def where(self, mask: Mask) -> "Calls":
        """The calls of `mask`."""
        columns = (self.chunk, self.past, self.seqs, self.kv, self.us)
        return Calls(*(column[mask] for column in columns))

    @property
    def mixed(self) -> Mask:
        """Whether a call holds a chunk and decodes."""
        return np.asarray((self.chunk > 0) & (self.seqs > 0))

    @property
    def tabled(self) -> Mask:
        """Whether a call is in the tables: all lengths powers of two or 0, and those chosen."""
        lengths = (self.chunk, self.past, self.kv)
        on_grid = np.all([_doubling(length) for length in lengths], axis=0)
        chosen = np.isin(self.past, MIXED_PASTS) & np.isin(self.kv, MIXED_CONTEXTS)
        return np.asarray(on_grid & (~self.mixed | chosen))


def calls_of(profile: Profile) -> Calls:
    """The attention table of a profile."""
    return Calls(*profile.attention.values())


def tree(
    profile: Profile, target: Deployment, multiprocessors: int, link: dict[str, Any] | None
) -> dict[str, Any]:
    """The `tables` of servesim.cost.kernels.Kernels; `link` is the one of all-reduces."""
    layers = target.model.num_layers
    calls = calls_of(profile)
    calls = calls.where(calls.tabled)
    dense = layers * profile.layer_us + profile.once_us
    return {
        "dense": {"tokens": profile.tokens, "us": grids.never_falling(dense)},
        "head": {"rows": profile.rows, "us": grids.never_falling(profile.head_us)},
        "decode_attention": _decodes(calls, layers),
        "prefill_attention": _chunks(calls, layers),
        "mixed_attention": _mixed(calls, layers),
        "mixed": {"decode_share": 1.0},
        "uneven": _uneven(profile, target, multiprocessors),
        "all_reduce": link,
        "moe": _experts(profile, layers) if profile.moe else None,
    }


def step_parts(profile: Profile, timer: KernelTimer, layers: int, kv_tokens: float) -> list[Part]:
    """Whole steps at the calls that are not in the tables and that a KV cache could hold.

    The rest of a measured step comes from the dense, head and expert tables, as the timer reads
    them. Steps without host time.
    """
    calls = calls_of(profile)
    fits = calls.past + calls.chunk + calls.seqs * calls.kv <= kv_tokens
    between = calls.where(~calls.tabled & fits)
    named = ("chunk", between.chunk), ("past", between.past), ("decodes", between.seqs)
    errors, alone = [], []
    for i in range(len(between.us)):
        cell = (between.chunk[i], between.past[i], between.seqs[i], between.kv[i])
        parts = timer.parts_us(plan_of(*cell))
        measured = layers * between.us[i]
        rest = sum(us for name, us in parts.items() if name not in ("attention", "host"))
        alone.append(parts["attention"] / measured - 1)
        errors.append((rest + parts["attention"]) / (rest + measured) - 1)
    where = [
        " ".join(f"{name}={values[i]:g}" for name, values in named) + f" kv={between.kv[i]:g}"
        for i in range(len(errors))
    ]
    every = np.ones(len(errors), dtype=bool)
    chosen = [
        ("decode_step", errors, between.chunk == 0),
        ("mixed_step", errors, between.mixed),
        ("attention", alone, every),
        ("step", errors, every),
    ]
    return [
        _part(name, np.array(values), mask, where) for name, values, mask in chosen if mask.any()
    ]


def _doubling(length: Array) -> Mask:
    whole = np.maximum(length, 1).astype(np.int64)
    return np.asarray((whole & (whole - 1)) == 0)


def _decodes(calls: Calls, layers: int) -> dict[str, Any]:
    alone = calls.where(calls.chunk == 0)
    seqs, contexts = np.unique(alone.seqs), np.unique(alone.kv)
    us = np.full((len(seqs), len(contexts)), np.nan)
    us[np.searchsorted(seqs, alone.seqs), np.searchsorted(contexts, alone.kv)] = alone.us
    level = layers * grids.never_falling(grids.despiked(contexts, us))
    return {"seqs": seqs, "context": contexts, "us": [row[np.isfinite(row)] for row in level]}


def _chunks(calls: Calls, layers: int) -> dict[str, Any]:
    alone = calls.where((calls.chunk > 0) & (calls.seqs == 0))
    chunks, pasts = np.unique(alone.chunk), np.unique(alone.past)
    us = np.full((len(chunks), len(pasts)), np.nan)
    us[np.searchsorted(chunks, alone.chunk), np.searchsorted(pasts, alone.past)] = alone.us
    return {"chunk": chunks, "past": pasts, "us": layers * grids.never_falling(us)}


def _mixed(calls: Calls, layers: int) -> dict[str, Any]:
    both = calls.where(calls.mixed)
    axes = [np.unique(axis) for axis in (both.chunk, both.past, both.seqs, both.kv)]
    us = np.full([len(axis) for axis in axes], np.nan)
    values = (both.chunk, both.past, both.seqs, both.kv)
    at = [np.searchsorted(axis, value) for axis, value in zip(axes, values, strict=True)]
    us[tuple(at)] = both.us
    names = ("chunk", "past", "seqs", "context")
    return dict(zip(names, axes, strict=True)) | {"us": layers * grids.never_falling(us)}


def _uneven(profile: Profile, target: Deployment, multiprocessors: int) -> dict[str, float]:
    """Beyond so many sequences KV is not split, and the longest one ends after the others."""
    kv_heads = target.model.kv_heads_per_rank(target.tp)
    limit = fitted_attention.SPLIT_BELOW_TASKS_PER_SM * multiprocessors
    whole_from = math.ceil(limit / kv_heads)
    skew = profile.skew
    if not skew:
        return {"seqs_equivalent": 0.0, "whole_from_seqs": 0}
    usable = fitted_attention.uneven_rows(skew, whole_from, math.inf)
    equivalent = float(np.median((skew["alpha"] * skew["n"])[usable]))
    return {"seqs_equivalent": equivalent, "whole_from_seqs": whole_from}


def _experts(profile: Profile, layers: int) -> dict[str, Any]:
    """Time by tokens and experts; more of these than tokens can reach are never read."""
    tokens, experts, us = profile.moe.values()
    axes = np.unique(tokens), np.unique(experts)
    table = np.full([len(axis) for axis in axes], np.nan)
    table[np.searchsorted(axes[0], tokens), np.searchsorted(axes[1], experts)] = us
    for column in table.T:
        first = int(np.isfinite(column).argmax())
        column[:first] = column[first]
    return {"tokens": axes[0], "experts": axes[1], "us": layers * grids.never_falling(table)}


def _part(name: str, error: Array, mask: Mask, where: list[str]) -> Part:
    chosen = np.flatnonzero(mask)
    worst = chosen[int(np.abs(error[mask]).argmax())]
    return Part(name, error[mask], where[worst])
