"""Reader of LLMServingSim's operator profiles and measured vLLM runs (MIT).

Tables are microseconds of one hidden layer on one tensor-parallel rank. Those of the tool's own
simulator (files called sim or predictions) are not read.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from validation.sources.tables import Array as Array
from validation.sources.tables import duration, number, records

REPOSITORY = "github.com/casys-kaist/LLMServingSim"
COMMIT = "5daddb21a545658d5150b535712d0494584b5278"
LICENCE = "MIT"

# how often a layer of the profile runs in one decoder layer; 0 where it runs once per step
RUNS_PER_LAYER = {
    "layernorm": 2,  # before attention and before the MLP
    "qkv_proj": 1,
    "qk_norm": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
    "embedding": 0,
    "final_layernorm": 0,
}
OPTIONAL_LAYERS = ("qk_norm",)
ATTENTION_COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
MOE_COLUMNS = ("tokens", "activated_experts", "time_us")
MLP_LAYERS = ("gate_up_proj", "act_fn", "down_proj")  # which a layer of experts has not
SKEW_COLUMNS = ("n", "nb", "pc", "kp", "kv_big", "kv_mean", "t_mean_us", "t_max_us", "alpha")


@dataclass(frozen=True)
class Profile:
    """Operator times of one model on one GPU.

    Attributes:
        model: published name.
        engine_version: of vLLM.
        files: folder within the repository.
        tokens: of `layer_us` and `once_us`.
        layer_us: one layer without attention.
        once_us: embedding and final norm.
        rows: sampled sequences of `head_us`.
        head_us: LM head and sampler.
        attention: columns of ATTENTION_COLUMNS.
        skew: columns of SKEW_COLUMNS, or empty where it was not measured.
        gpu_memory_utilization: of the profiled engine.
        moe: columns of MOE_COLUMNS, or empty for a dense model.
    """

    model: str
    engine_version: str
    files: str
    tokens: Array
    layer_us: Array
    once_us: Array
    rows: Array
    head_us: Array
    attention: dict[str, Array]
    skew: dict[str, Array]
    gpu_memory_utilization: float
    moe: dict[str, Array] = field(default_factory=dict)


def read_profile(root: Path, gpu: str, model: str, tp: int, *, experts: bool = False) -> Profile:
    """The profile of `model` (last part of its name) on `gpu` (the source's folder name).

    Only with `experts`, a model of routed experts is read, whose layers have no MLP.

    Raises:
        UnknownChoiceError: no such GPU, model or tp.
        TraceError: a file, named with its line, is not what it should be.
    """
    perf = root / "profiler" / "perf"
    if not perf.is_dir():
        raise MissingDataError(f"no profiler/perf in {root}: it is part of {REPOSITORY}")
    _choose("gpu", gpu, [path.name for path in perf.iterdir()])
    found = {path.parent.name: path for path in (perf / gpu).glob("*/*/bf16")}
    _choose(f"model profiled on {gpu}", model, list(found))
    folder = found[model] / f"tp{tp}"
    degrees = [path.name[2:] for path in found[model].glob("tp*")]
    _choose(f"tp profiled for {model} on {gpu}", str(tp), degrees)
    meta = _read_meta(found[model] / "meta.yaml")
    tokens, layers = _by_layer(folder / "dense.csv", "tokens")
    routed = experts and "gate_up_proj" not in layers
    optional = (*OPTIONAL_LAYERS, *MLP_LAYERS) if routed else OPTIONAL_LAYERS
    missing = [k for k in RUNS_PER_LAYER if k not in layers and k not in optional]
    if missing:
        reason = f"has no rows of {', '.join(missing)}; only dense models can be fitted"
        raise TraceError(str(folder / "dense.csv"), None, reason)
    rows, heads = _by_layer(folder / "per_sequence.csv", "sequences")
    if set(heads) != {"lm_head", "sampler"}:
        raise TraceError(str(folder / "per_sequence.csv"), None, "must hold lm_head and sampler")
    skew = folder / "skew.csv"
    return Profile(
        model=str(meta["model"]),
        engine_version=str(meta["vllm_version"]),
        files=str(folder.relative_to(root)),
        tokens=tokens,
        layer_us=_total(runs * layers[k] for k, runs in RUNS_PER_LAYER.items() if k in layers),
        once_us=layers["embedding"] + layers["final_layernorm"],
        rows=rows,
        head_us=heads["lm_head"] + heads["sampler"],
        attention=_columns(folder / "attention.csv", ATTENTION_COLUMNS),
        skew=_columns(skew, SKEW_COLUMNS, may_lack=("alpha",)) if skew.is_file() else {},
        gpu_memory_utilization=float(meta["engine_effective"]["gpu_memory_utilization"]),
        moe=_columns(folder / "moe.csv", MOE_COLUMNS) if routed else {},
    )


@dataclass(frozen=True)
class Served:
    """One request of a measured run; stamps are seconds of one clock."""

    input_tokens: int
    output_tokens: int
    queued_s: float
    first_token_s: float
    last_token_s: float


def read_run(root: Path, gpu: str, model: str) -> list[Served] | None:
    """The measured vLLM run of `model` on `gpu`, or None where there is none."""
    path = root / "bench" / "examples" / gpu / model / "vllm" / "requests.jsonl"
    if not path.is_file():
        return None
    served = []
    for line_number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            stamps = [float(row[f"{k}_ts"]) for k in ("queued", "first_token", "last_token")]
            served.append(Served(int(row["input_toks"]), int(row["output_toks"]), *stamps))
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise TraceError(str(path), line_number, f"not a request of a run: {error!r}") from None
        if stamps != sorted(stamps):
            raise TraceError(str(path), line_number, f"time stamps run backwards: {stamps}")
    return served


def _choose(what: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise UnknownChoiceError(what, value, known)


def _total(arrays: Any) -> Array:
    return np.asarray(np.sum(list(arrays), axis=0))


def _read_meta(path: Path) -> dict[str, Any]:
    """meta.yaml, checked for what is used of it."""
    if not path.is_file():
        raise TraceError(str(path), None, "is missing")
    meta: Any = yaml.safe_load(path.read_text())
    for key in ("model", "vllm_version", "engine_effective"):
        if not isinstance(meta, dict) or key not in meta:
            raise TraceError(str(path), None, f"has no '{key}'")
    if "gpu_memory_utilization" not in meta["engine_effective"]:
        raise TraceError(str(path), None, "has no 'engine_effective.gpu_memory_utilization'")
    return dict(meta)


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    if name == "time_us":
        return duration(path, line, name, text)
    return number(path, line, name, text, signed=name == "alpha")


def _columns(
    path: Path, names: tuple[str, ...], may_lack: tuple[str, ...] = ()
) -> dict[str, Array]:
    """Columns of numbers; rows with an empty cell of `may_lack` are left out."""
    kept = [
        [_number(path, line, name, row[name]) for name in names]
        for line, row in records(path, names, "µs")
        if all(row[name] for name in may_lack)
    ]
    return dict(zip(names, np.array(kept, dtype=np.float64).T, strict=True))


def _by_layer(path: Path, axis: str) -> tuple[Array, dict[str, Array]]:
    """One column per layer over a common, increasing axis."""
    times: dict[str, dict[float, float]] = {}
    for line, row in records(path, ("layer", axis, "time_us"), "µs"):
        layer = row["layer"]
        if axis == "tokens" and layer not in RUNS_PER_LAYER:
            problem = UnknownChoiceError("layer", layer, RUNS_PER_LAYER)
            raise TraceError(str(path), line, problem.message)
        at = _number(path, line, axis, row[axis])
        if at in times.setdefault(layer, {}):
            raise TraceError(str(path), line, f"second row of {layer} at {axis}={at:g}")
        times[layer][at] = _number(path, line, "time_us", row["time_us"])
    grid = sorted(next(iter(times.values())))
    for layer, column in times.items():
        if sorted(column) != grid:
            raise TraceError(str(path), None, f"{layer} has another {axis} grid than the others")
    by_layer = {layer: np.array([column[x] for x in grid]) for layer, column in times.items()}
    return np.array(grid), by_layer
