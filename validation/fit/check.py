"""Held-out error of a fitted cost, by part and for whole steps."""

from dataclasses import dataclass

import numpy as np

from servesim.cost.fitted_timer import FittedTimer
from servesim.records import StepPlan, Work
from servesim.units import US_PER_S, ps_to_seconds
from validation.fit.curves import every_fifth
from validation.fit.rows import Attention, Mask
from validation.sources.llmservingsim import Profile
from validation.sources.tables import Array


@dataclass(frozen=True)
class Part:
    """Relative errors of one part on held-out points.

    Attributes:
        name: of the part.
        error: predicted ÷ measured − 1, one per point.
        worst_at: where the largest is.
    """

    name: str
    error: Array
    worst_at: str

    def summary(self) -> dict[str, float | int | str]:
        """Median, p90 and worst of the absolute error, mean of the signed one, and where."""
        size = np.abs(self.error)
        return {
            "points": len(size),
            "median": round(float(np.median(size)), 4),
            "p90": round(float(np.quantile(size, 0.9)), 4),
            "worst": round(float(size.max()), 4),
            "mean_signed": round(float(np.mean(self.error)), 4),
            "worst_at": self.worst_at,
        }


def plan_of(chunk: float, past: float, seqs: float, kv: float) -> StepPlan:
    """The step that a row of an attention table stands for; every request samples."""
    context = int(kv)
    decodes = tuple(Work(i, 1, max(0, context - 1), 0, True) for i in range(int(seqs)))
    chunks = (Work(len(decodes), int(chunk), int(past), 0, True),) if chunk else ()
    return StepPlan(decodes + chunks)


def curve_parts(profile: Profile, timer: FittedTimer) -> list[Part]:
    """Dense layers and head at the points that no curve was fitted to."""
    held = every_fifth(len(profile.tokens))
    tokens = profile.tokens[held]
    dense = np.array([timer.dense_us(int(t)) for t in tokens]) / profile.layer_us[held] - 1
    held = every_fifth(len(profile.rows))
    head = np.array([timer.head_us(int(r)) for r in profile.rows[held]])
    head = head / profile.head_us[held] - 1
    return [
        _part("dense_layers", dense, [f"tokens={t:g}" for t in tokens]),
        _part("head_and_sampler", head, [f"rows={r:g}" for r in profile.rows[held]]),
    ]


def step_parts(rows: Attention, timer: FittedTimer, kv_tokens: float) -> list[Part]:
    """Attention and whole steps at held-out rows; those beyond `kv_tokens` of KV by themselves.

    The rest of a measured step comes from the dense and head tables (see rows.attention_rows).
    """
    layers = timer.num_layers
    cells = list(zip(rows.chunk, rows.past, rows.seqs, rows.kv, strict=True))
    us = np.array([timer.attention_us(plan_of(*cell)) for cell in cells])
    step_ps = [timer.step_time(plan_of(*cell)).duration_ps for cell in cells]
    step_us = np.array([ps_to_seconds(ps) * US_PER_S for ps in step_ps])
    attention = us / rows.us - 1
    step = step_us / (layers * (rows.us + rows.rest_us)) - 1
    where = [f"chunk={c:g} past={p:g} decodes={n:g} kv={k:g}" for c, p, n, k in cells]
    fits = rows.past + rows.chunk + rows.seqs * rows.kv <= kv_tokens
    mixed = rows.chunk > 0
    chosen: list[tuple[str, Array, Mask]] = [
        ("decode_attention", attention, fits & ~mixed),
        ("mixed_attention", attention, fits & mixed),
        ("decode_step", step, fits & ~mixed),
        ("mixed_step", step, fits & mixed),
        ("step", step, fits),
        ("step_beyond_kv_capacity", step, ~fits),
    ]
    return [
        _part(name, error[mask], [w for w, m in zip(where, mask, strict=True) if m])
        for name, error, mask in chosen
        if mask.any()
    ]


def uneven_part(skew: dict[str, Array], rows: Mask, timer: FittedTimer) -> Part:
    """Decode attention of unequal contexts: time ÷ time at the mean context, against measured."""
    columns = ("n", "kv_mean", "kv_big", "t_mean_us", "t_max_us", "alpha")
    errors, where = [], []
    for n, mean, longest, t_mean, t_max, alpha in zip(
        *(skew[c][rows] for c in columns), strict=True
    ):
        even = timer.decode_attention_us(int(n), n * mean, mean)
        uneven = timer.decode_attention_us(int(n), n * mean, longest)
        measured = 1 + alpha * (t_max / t_mean - 1)
        errors.append(uneven / even / measured - 1)
        where.append(f"decodes={n:g} mean={mean:g} longest={longest:g}")
    return _part("uneven_decode_attention", np.array(errors), where)


def _part(name: str, error: Array, where: list[str]) -> Part:
    return Part(name, error, where[int(np.abs(error).argmax())])
