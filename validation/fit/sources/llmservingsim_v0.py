"""Fit of LLMServingSim's older operator profiles (profiler/v0): `Kernels` cost out."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import SettingError, UnknownChoiceError
from validation.fit import old_attention, old_errors, result
from validation.fit.old_attention import Decodes
from validation.fit.old_dense import fit_dense
from validation.fit.rows import Mask, held_out
from validation.fit.targets import Target, named_deployment
from validation.sources import llmservingsim
from validation.sources import llmservingsim_v0 as source

FOLDER = "llmservingsim"
GPUS = {  # multiprocessors: NVIDIA's architecture papers
    "A6000": Target("rtx_a6000", 84),
    "RTX3090": Target("rtx_3090", 82),
    "H100": Target("h100_sxm", 132),
}
MODELS = {
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Llama-3.1-70B": "meta-llama/Llama-3.1-70B",
    "Mixtral-8x7B-v0.1": "mistralai/Mixtral-8x7B-v0.1",
}
ALL_REDUCES_PER_LAYER = 2  # after the attention output and after the MLP (Megatron-LM)
MOST_SEQS, LONGEST, LARGEST_BATCH = 256, 16384, 2048
# beside a chunk, FlashAttention-2 neither splits a decode's KV nor shares it among query heads: on
# RTX 4090 and RTX PRO 6000 (profiler/perf), a token of context costs 1.4 to 1.6 times as much as
# alone; FlashAttention-3, on H100, does both
DECODE_SHARE = {"A6000": 1.5, "RTX3090": 1.5, "H100": 1.0}
HEADER = (
    "tables are microseconds of the whole model on one rank (servesim/cost/kernel_tables.py);",
    "errors are shares on points held out of the fit, by the profile's own decode kernel, no host",
)


@dataclass(frozen=True)
class Request:
    """What is to be fitted.

    Attributes:
        gpu: the source's folder name.
        model: last part of its published name.
        host_step_us: host time per step; the profile has kernels only.
        tp: tensor-parallel ranks.
        attention_from: GPU/model/tpN of a profile of the same architecture whose decodes stand in
            where this one has none.
        all_reduce_us: of one all-reduce between the ranks; not in the profile.
        all_reduce_us_per_token: further, per token of the batch.
        link: where these two come from, in words.
    """

    gpu: str
    model: str
    host_step_us: float
    tp: int = 1
    attention_from: str | None = None
    all_reduce_us: float | None = None
    all_reduce_us_per_token: float | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        checks.whole("tp", self.tp, at_least=1)
        checks.not_negative("host_step_us", self.host_step_us)
        for setting in ("all_reduce_us", "all_reduce_us_per_token", "link"):
            value = getattr(self, setting)
            if self.tp > 1 and value is None:
                raise SettingError(setting, None, "must be given for tp > 1: profiles hold a rank")
            if self.tp == 1 and value is not None:
                raise SettingError(setting, value, "has no meaning for tp=1")
            if value is not None and setting != "link":
                checks.not_negative(setting, value)


def fit(root: Path, request: Request) -> result.Fit:
    """Fit `request` to the profiles under `root`, the source's folder.

    Raises:
        UnknownChoiceError: no such profile, or no YAML of its GPU or model here.
        SettingError: the profile has no decodes and `attention_from` names no profile that has.
        TraceError: a file of the profile is not what it should be.
    """
    profile, target = _profile(root, request.gpu, request.model, request.tp)
    dense = fit_dense(profile, target)
    decodes, origin = _decodes(root, request, profile, target)
    rows, no_rows = profile.attention, np.zeros(0, dtype=bool)
    multiprocessors = GPUS[request.gpu].multiprocessors
    full = old_attention.full_gpu(rows, target, multiprocessors) if rows else no_rows
    held_decodes = full & held_out(rows.seqs, rows.kv_tokens) if rows else no_rows
    held_chunks = held_out(rows.chunk, rows.past) if rows else no_rows
    chunks = old_attention.fit_chunks(profile, decodes, ~held_chunks)
    fitted = old_errors.Fitted(profile, target, dense, decodes, chunks)
    errors, residuals = old_errors.errors(fitted, held_decodes, held_chunks)
    errors = dense.errors + errors
    tables = {
        "dense": dense.tables["dense"],
        "head": dense.tables["head"],
        "decode_attention": old_attention.decode_table(decodes, target, MOST_SEQS, LONGEST),
        "prefill_attention": chunks.table(target.model.num_layers),
        "mixed_attention": None,
        "mixed": {"decode_share": DECODE_SHARE[request.gpu]},
        "uneven": {"seqs_equivalent": 0, "whole_from_seqs": 0},
        "all_reduce": _all_reduce(request, target),
        "moe": dense.tables["moe"],
    }
    tree = {
        "_target_": "servesim.cost.kernels.Kernels",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(target),
        "source": _source(profile, request, origin),
        "fit_range": _ranges(profile, full),
        "held_out_error": {part.name: part.summary() for part in errors},
        "residuals": residuals,
        "tables": {name: table and result.rounded(table) for name, table in tables.items()},
        "graphs": {"sizes": []},
        "host": {"us": result.rounded(request.host_step_us)},
    }
    return result.Fit(tree, errors, f"attention of decodes: {origin}", HEADER)


def _profile(root: Path, gpu: str, model: str, tp: int) -> tuple[source.Profile, Deployment]:
    for setting, value, known in (("gpu", gpu, GPUS), ("model", model, MODELS)):
        _known(setting, value, known)
    profile = source.read_profile(root, gpu, model, tp)
    return profile, named_deployment(GPUS[gpu].hardware, MODELS[model], tp)


def _known(setting: str, value: str, known: Mapping[str, object]) -> None:
    if value not in known:
        raise UnknownChoiceError(setting, value, known)


def _decodes(
    root: Path, request: Request, profile: source.Profile, target: Deployment
) -> tuple[Decodes, str]:
    """Attention of decodes, and where it comes from in words."""
    if profile.attention is not None:
        used = _used_decodes(profile.attention, target, request.gpu)
        fitted = old_attention.fit_decodes(profile.attention, target, used)
        return fitted, "measured; that query heads share their KV is assumed"
    lent = request.attention_from
    if lent is None:
        reason = f"must be given: {profile.files} has no attention.csv"
        raise SettingError("attention_from", None, reason)
    gpu, _, rest = lent.partition("/")
    model, _, degree = rest.partition("/tp")
    if not degree.isdigit():
        raise SettingError("attention_from", lent, "must be GPU/model/tpN")
    lender, on = _profile(root, gpu, model, int(degree))
    if lender.attention is None:
        raise SettingError("attention_from", lent, "has no attention.csv either")
    used = _used_decodes(lender.attention, on, gpu)
    fitted = old_attention.fit_decodes(lender.attention, on, used)
    return fitted, f"share of the memory's bandwidth as measured in {lender.files}"


def _used_decodes(rows: source.Attention, target: Deployment, gpu: str) -> Mask:
    full = old_attention.full_gpu(rows, target, GPUS[gpu].multiprocessors)
    return np.asarray(full & ~held_out(rows.seqs, rows.kv_tokens))


def _all_reduce(request: Request, target: Deployment) -> dict[str, Any] | None:
    """All of a step, at a token and at the largest batch; their time is linear in between."""
    us, per_token = request.all_reduce_us, request.all_reduce_us_per_token
    if us is None or per_token is None:
        return None
    times = ALL_REDUCES_PER_LAYER * target.model.num_layers
    tokens = (1, LARGEST_BATCH)
    return {"tokens": tokens, "us": [times * (us + per_token * n) for n in tokens]}


def _source(profile: source.Profile, request: Request, attention: str) -> dict[str, Any]:
    return {
        "repository": llmservingsim.REPOSITORY,
        "commit": llmservingsim.COMMIT,
        "licence": llmservingsim.LICENCE,
        "files": profile.files,
        "engine_version": "not recorded",
        "fitted_at": datetime.date.today().isoformat(),
        "attention": attention,
        "host": "stated to the fit (host_step_us)",
        "link": request.link or "none: one rank",
    }


def _ranges(profile: source.Profile, full: Mask) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py; `full` decode rows are used."""
    most, rows = int(profile.tokens[-1]), profile.attention
    past = int(rows.past.max()) if rows else 0
    longest = int((rows.kv_tokens / rows.seqs)[full].max()) if rows else LONGEST
    return {
        "tokens": [1, most],
        "sampled_rows": [1, MOST_SEQS],
        "decode_seqs": [1, MOST_SEQS],
        "longest_decode_context": [16, longest],
        "longest_prefill_context": [1, most + past],
        "prefill_past": [0, past],
        "kv_tokens": [1, int(rows.kv_tokens.max()) if rows else LONGEST],
    }
