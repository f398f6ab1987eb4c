"""Fit of Splitwise's prompt and token times: whole steps in, `Regression` cost out."""

import datetime
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servesim import checks
from servesim.deployment import Deployment
from servesim.errors import TraceError, UnknownChoiceError
from validation.fit import result, steps
from validation.fit.targets import named_deployment
from validation.sources import splitwise as source
from validation.sources.tables import Array

FOLDER = "splitwise-sim"
HARDWARE = {"a100-80gb": "a100_80gb_sxm", "h100-80gb": "h100_sxm"}  # DGX-A100, DGX-H100
MODELS = {"llama2-70b": "meta-llama/Llama-2-70b-hf", "bloom-176b": "bigscience/bloom"}
US_PER_MS = 1e3
FEWEST_CELLS = 8  # seven coefficients from fewer would say nothing about themselves
HEADER = (
    "coefficients are microseconds (servesim/cost/regression.py); errors are shares, each batch",
    "predicted by a fit to all the others; host time is in them",
)


@dataclass(frozen=True)
class Request:
    """What is to be fitted.

    Attributes:
        gpu: the source's name, or the part before "-80gb".
        model: the source's name.
        tp: tensor-parallel ranks.
    """

    gpu: str
    model: str
    tp: int

    def __post_init__(self) -> None:
        checks.whole("tp", self.tp, at_least=1)


def fit(root: Path, request: Request) -> result.Fit:
    """Fit `request` to the table under `root`, the source's folder.

    Raises:
        UnknownChoiceError: no such model, GPU or tp.
        TraceError: the table is not what it should be, or holds too few batches.
    """
    hardware = _known("gpu", f"{request.gpu.removesuffix('-80gb')}-80gb", HARDWARE)
    model = _known("model", request.model, MODELS)
    target = named_deployment(HARDWARE[hardware], MODELS[model], request.tp)
    cells = [c for c in source.read_cells(root) if (c.model, c.hardware) == (model, hardware)]
    degrees = sorted({cell.tp for cell in cells})
    _known(f"tp measured for {model} on {hardware}", str(request.tp), [str(d) for d in degrees])
    cells = [cell for cell in cells if cell.tp == request.tp]
    if len(cells) < FEWEST_CELLS:
        reason = f"{len(cells)} usable batches of {model} on {hardware}, tp {request.tp}: too few"
        raise TraceError(str(root / source.FILE), None, reason)
    measured, where = _steps(cells)
    logs = steps.held_out_residuals(measured)
    errors = steps.parts(measured, logs, where)
    tree = {
        "_target_": "servesim.cost.regression.Regression",
        "_convert_": "all",
        "allow_mismatch": False,
        "fitted_on": result.fitted_on(target),
        "source": _source(target),
        "fit_range": _ranges(cells),
        "held_out_error": {part.name: part.summary() for part in errors},
        "residuals": steps.residual_tree(logs[~measured.chunk], logs[measured.chunk]),
        "coefficients": result.rounded(asdict(steps.fit_terms(measured))),
    }
    caption = f"{len(cells)} batches; each predicted by a fit to all batches of another size"
    return result.Fit(tree, errors, caption, HEADER)


def _known(setting: str, value: str, known: Any) -> str:
    if value not in known:
        raise UnknownChoiceError(setting, value, known)
    return value


def _steps(cells: list[source.Cell]) -> tuple[steps.Steps, list[str]]:
    """A prompt step and the mean decode step of every batch; one group per prompt and batch."""
    rows: list[tuple[float, ...]] = []
    where = []
    sizes = sorted({(cell.prompt_tokens, cell.batch) for cell in cells})
    prompts: dict[int, list[float]] = {}
    for cell in cells:
        group = sizes.index((cell.prompt_tokens, cell.batch))
        prompts.setdefault(group, []).append(cell.prompt_ms)
        context = cell.prompt_tokens + cell.reply_tokens / 2
        kv_tokens = cell.batch * context
        rows.append((cell.batch, cell.batch, kv_tokens, 0, 0, cell.token_ms * US_PER_MS, group))
        where.append(f"decodes={cell.batch} context={context:g}")
    for group, times in sorted(prompts.items()):
        prompt, batch = sizes[group]
        tokens, pairs = batch * prompt, batch * prompt * prompt / 2
        us = float(np.median(times)) * US_PER_MS
        rows.append((tokens, batch, tokens, pairs, 1, us, group))
        where.append(f"prompts={batch} tokens={prompt}")
    columns: list[Array] = list(np.array(rows, dtype=float).T)
    tokens_, requests, kv, pairs_, chunk, us_, groups = columns
    return steps.Steps(tokens_, requests, kv, pairs_, chunk > 0, us_, groups), where


def _source(target: Deployment) -> dict[str, Any]:
    return {
        "repository": source.REPOSITORY,
        "commit": source.COMMIT,
        "licence": source.LICENCE,
        "files": f"data/{source.FILE}",
        "engine_version": "not recorded",
        "fitted_at": datetime.date.today().isoformat(),
        "host": "in the measured steps",
        "link": f"in the measured steps, tp {target.tp}",
    }


def _ranges(cells: list[source.Cell]) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py."""
    prompt = [cell.prompt_tokens for cell in cells]
    batch = [cell.batch for cell in cells]
    ends = [cell.prompt_tokens + cell.reply_tokens for cell in cells]
    kv = [cell.batch * cell.prompt_tokens for cell in cells]
    all_kv = [cell.batch * end for cell, end in zip(cells, ends, strict=True)]
    return {
        "tokens": [min(batch), max(kv)],
        "sampled_rows": [min(batch), max(batch)],
        "decode_seqs": [min(batch), max(batch)],
        "longest_decode_context": [min(prompt), max(ends)],
        "longest_prefill_context": [min(prompt), max(prompt)],
        "prefill_past": [0, 0],
        "kv_tokens": [min(kv), max(all_kv)],
    }
