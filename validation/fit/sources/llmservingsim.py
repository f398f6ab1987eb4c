"""Fit of vLLM operator profiles (LLMServingSim): profile in, `Fitted` cost out."""

import datetime
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from servesim import checks
from servesim.cost import coefficients as parts
from servesim.cost.fit_range import FitRange
from servesim.cost.fitted_timer import FittedTimer
from servesim.deployment import Deployment
from servesim.errors import SettingError
from validation.fit import attention, check, curves, host, result, rows, steps
from validation.fit.kernels import profile_cost
from validation.fit.targets import TARGETS, deployment
from validation.sources import llmservingsim as source

FOLDER = "llmservingsim"
FORMS = ("coefficients", "kernels")
HEADER = (
    "coefficients are microseconds (servesim/cost/coefficients.py); errors are shares, on",
    "points that were held out of the fit, and do not include the host time",
)


@dataclass(frozen=True)
class Request:
    """What is to be fitted.

    Attributes:
        gpu: the source's folder name.
        model: last part of its published name.
        tp: tensor-parallel ranks.
        host_step_us: host time per step, or None to derive it from the source's measured run.
        host_seq_us: host time per sequence.
        all_reduce_us: of one all-reduce between the ranks; not in the profile.
        all_reduce_us_per_token: further, per token of the batch.
        form: of the cost, "coefficients" (Fitted) or "kernels" (Kernels: the measured tables).
    """

    gpu: str
    model: str
    tp: int = 1
    host_step_us: float | None = None
    host_seq_us: float = 0.0
    all_reduce_us: float | None = None
    all_reduce_us_per_token: float | None = None
    form: str = "coefficients"

    def __post_init__(self) -> None:
        checks.choice("form", self.form, FORMS)
        checks.whole("tp", self.tp, at_least=1)
        for setting in ("host_step_us", "host_seq_us", "all_reduce_us", "all_reduce_us_per_token"):
            value = getattr(self, setting)
            if value is not None:
                checks.not_negative(setting, value)


@dataclass(frozen=True, kw_only=True)
class Fit(result.Fit):
    """The fit, with the timer of its kernels (no host, no all-reduce)."""

    timer: FittedTimer


def fit(root: Path, request: Request) -> result.Fit:
    """Fit `request` to the profiles under `root`, the source's folder.

    Raises:
        UnknownChoiceError: no such profile, or no YAML of its GPU or model here.
        SettingError: an input that the profile lacks is not given.
        TraceError: a file of the profile is not what it should be.
    """
    if request.form == "kernels":
        return profile_cost.fit(root, request)
    profile = source.read_profile(root, request.gpu, request.model, request.tp)
    target = deployment(request.gpu, request.model, request.tp)
    link = _link(request)
    kv_tokens = rows.kv_capacity(target, profile.gpu_memory_utilization)
    table = rows.attention_rows(profile, target.model.num_layers, kv_tokens)
    held = rows.held_out(table.chunk, table.past, table.seqs, table.kv)
    decode, skew_held = _fit_decode(profile, target, table.where(~held), kv_tokens, request.gpu)
    kernels = _fit_kernels(profile, target, table.where(~held), decode)
    kernels = parts.parse(result.rounded(asdict(kernels)))
    ranges = rows.measured_ranges(
        profile, np.stack([table.chunk, table.past, table.seqs, table.kv])
    )
    timer = FittedTimer(kernels, target.model.num_layers, FitRange(ranges))
    host_us, origin = _host(root, request, timer)
    errors = _errors(profile, timer, table.where(held), kv_tokens)
    if skew_held is not None:
        errors.append(check.uneven_part(profile.skew, skew_held, timer))
    full = replace(kernels, host=parts.Host(host_us, request.host_seq_us), link=parts.Link(*link))
    tree = {
        "_target_": "servesim.cost.fitted.Fitted",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(target),
        "source": _source(profile) | {"host": origin},
        "fit_range": ranges,
        "held_out_error": {part.name: part.summary() for part in errors},
        "residuals": _residuals(errors),
        "coefficients": result.rounded(asdict(full)),
    }
    caption = f"host {host_us:g} µs per step, {origin}"
    return Fit(tree, errors, caption, HEADER, (_dense_curve(profile, timer),), timer=timer)


def _fit_decode(
    profile: source.Profile,
    target: Deployment,
    table: rows.Attention,
    kv_tokens: float,
    gpu: str,
) -> tuple[parts.DecodeAttention, rows.Mask | None]:
    """Attention of decodes, and the rows of unequal contexts that were held out of it, if any."""
    kv_heads = target.model.kv_heads_per_rank(target.tp)
    only_decodes = table.where(table.chunk == 0)
    decode = attention.fit_decode(only_decodes, kv_heads, TARGETS[gpu].multiprocessors)
    skew = profile.skew
    if not skew:
        return decode, None
    usable = attention.uneven_rows(skew, decode.whole_from_seqs, kv_tokens)
    held = rows.held_out(*(skew[c] for c in ("n", "nb", "kv_mean", "kv_big")))
    us = attention.uneven_us(skew, usable & ~held, decode.us_per_kv_token)
    return replace(decode, us_per_uneven_token=us), usable & held


def _fit_kernels(
    profile: source.Profile,
    target: Deployment,
    table: rows.Attention,
    decode: parts.DecodeAttention,
) -> parts.Coefficients:
    """Every part but host and link, on points that are not held out."""
    used = ~curves.every_fifth(len(profile.tokens))
    knots, us, tile, share = curves.fit_dense(profile.tokens[used], profile.layer_us[used])
    once = curves.fit_line(profile.tokens[used], profile.once_us[used])
    used = ~curves.every_fifth(len(profile.rows))
    head_knots = curves.knots_within(curves.HEAD_KNOTS, profile.rows)
    head_us = curves.fit_curve(profile.rows[used], profile.head_us[used], head_knots)
    heads = target.model.num_heads // target.tp
    heads_per_kv = heads // target.model.kv_heads_per_rank(target.tp)
    return parts.Coefficients(
        dense=parts.Dense(tuple(knots), tuple(us), tile, share),
        once=parts.Once(*once),
        head=parts.Head(tuple(head_knots), tuple(head_us)),
        decode_attention=decode,
        mixed_attention=attention.fit_mixed(table.where(table.chunk > 0), decode, heads_per_kv),
        link=parts.Link(0.0, 0.0),
        host=parts.Host(0.0, 0.0),
    )


def _residuals(errors: list[check.Part]) -> dict[str, Any]:
    logs = {part.name: -np.log1p(part.error) for part in errors}
    return steps.residual_tree(logs["decode_step"], logs["mixed_step"])


def _dense_curve(profile: source.Profile, timer: FittedTimer) -> result.Drawn:
    fitted = np.array([timer.dense_us(int(t)) for t in profile.tokens])
    unit = "one layer w/o attention, µs"
    return result.Drawn("tokens", unit, profile.tokens, profile.layer_us, fitted)


def _errors(
    profile: source.Profile, timer: FittedTimer, held: rows.Attention, kv_tokens: float
) -> list[check.Part]:
    return check.curve_parts(profile, timer) + check.step_parts(held, timer, kv_tokens)


def _host(root: Path, request: Request, timer: FittedTimer) -> tuple[float, str]:
    """Host time per step and where it comes from."""
    if request.host_step_us is not None:
        return request.host_step_us, "stated to the fit (host_step_us)"
    run = source.read_run(root, request.gpu, request.model) if request.tp == 1 else None
    if run is None:
        raise SettingError(
            "host_step_us",
            None,
            f"must be given: the source has no measured run of {request.model} on {request.gpu} "
            f"tp{request.tp} to derive it from",
        )
    derived = host.derive(run, timer)
    return derived.us, (
        f"derived from the measured run of the same source: its last {derived.steps} steps, "
        f"decodes only, {derived.first_batch} sequences falling to {derived.last_batch}"
    )


def _link(request: Request) -> tuple[float, float]:
    given = (request.all_reduce_us, request.all_reduce_us_per_token)
    for setting, value in zip(("all_reduce_us", "all_reduce_us_per_token"), given, strict=True):
        if request.tp > 1 and value is None:
            raise SettingError(setting, None, "must be given for tp > 1: profiles hold one rank")
        if request.tp == 1 and value is not None:
            raise SettingError(setting, value, "has no meaning for tp=1")
    return given[0] or 0.0, given[1] or 0.0


def _source(profile: source.Profile) -> dict[str, Any]:
    return {
        "repository": source.REPOSITORY,
        "commit": source.COMMIT,
        "licence": source.LICENCE,
        "files": profile.files,
        "engine_version": profile.engine_version,
        "fitted_at": datetime.date.today().isoformat(),
    }
