"""Reader of LLMServingSim's older operator profiles, profiler/v0 (MIT).

`layers.csv` is nanoseconds of one layer on one tensor-parallel rank at 1 … 2048 tokens; `attn` in
it is a prompt's attention to itself. `attention.csv`, where there is one, is milliseconds of one
layer, a prompt chunk or a batch of decodes. Three facts about it that its repository does not
state are read off its times:

* `kv_cache_size` of a decode batch is the KV of the whole batch: 64 decodes take 55 µs at 2,048 on
  an A6000, whose memory would need 700 µs for 64 × 2,048 tokens.
* Query heads do not share the KV that they have in common: per KV token, decodes take the time
  that num_heads (not num_kv_heads) keys and values need at 85–97 % of the memory's bandwidth.
* A chunk attends to its past only, not to itself: at equal numbers of both, it takes the
  time of a full rectangle.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from validation.sources.llmservingsim import REPOSITORY
from validation.sources.tables import Array, duration, records, whole

FOLDER = Path("profiler") / "v0" / "perf_models"
NS_PER_US, US_PER_MS = 1e3, 1e3

# how often a layer of the table runs in one decoder layer of a dense model
PER_LAYER = (
    "input_layernorm",
    "q_proj",
    "k_proj",
    "v_proj",
    "rope",
    "o_proj",
    "post_layernorm",
    "act_fn",
)
DENSE_MLP = ("gate_proj", "up_proj", "down_proj")
ROUTER = ("gate",)
EXPERT = ("expert.w1", "expert.w3", "expert.w2")
ONCE = ("embedding", "final_layernorm")
HEAD = ("lm_head",)
OWN_ATTENTION = ("attn",)
LAYER_COLUMNS = ("layer_name", "input", "kv_cache", "tp_size", "latency(ns)")
ATTENTION_COLUMNS = (
    "time_stats.attn_prefill.median",
    "time_stats.attn_decode.median",
    "n_q_head",
    "n_kv_head",
    "num_tensor_parallel_workers",
    "batch_size",
    "prefill_chunk_size",
    "kv_cache_size",
    "is_prefill",
)


@dataclass(frozen=True)
class Attention:
    """One layer's attention on one rank.

    Attributes:
        chunk: tokens of each measured chunk.
        past: tokens of KV that it attends to, its own not among them.
        chunk_us: microseconds of each.
        seqs: decodes of each measured batch.
        kv_tokens: KV of the whole batch.
        decode_us: microseconds of each.
    """

    chunk: Array
    past: Array
    chunk_us: Array
    seqs: Array
    kv_tokens: Array
    decode_us: Array


@dataclass(frozen=True)
class Profile:
    """Operator times of one model on one GPU.

    Attributes:
        files: folder within the repository.
        tokens: 1, 2, … as measured.
        layers_us: by layer, microseconds at each of `tokens`.
        attention: None where it was not measured.
    """

    files: str
    tokens: Array
    layers_us: dict[str, Array]
    attention: Attention | None

    @property
    def is_moe(self) -> bool:
        """Whether the layers hold experts."""
        return EXPERT[0] in self.layers_us

    def sum_us(self, names: tuple[str, ...]) -> Array:
        """Layers together, microseconds at each of `tokens`."""
        return np.asarray(np.sum([self.layers_us[name] for name in names], axis=0))


def read_profile(root: Path, gpu: str, model: str, tp: int) -> Profile:
    """The profile of `model` (last part of its name) on `gpu` (the source's folder name).

    Raises:
        MissingDataError: there is no profiler/v0 under `root`.
        UnknownChoiceError: no such GPU, model or tp.
        TraceError: a file, named with its line, is not what it should be.
    """
    base = root / FOLDER
    if not base.is_dir():
        raise MissingDataError(f"no {FOLDER} in {root}: it is part of {REPOSITORY}")
    _choose("gpu", gpu, [path.name for path in base.iterdir()])
    models = {path.name: path for path in (base / gpu).glob("*/*")}
    _choose(f"model profiled on {gpu}", model, list(models))
    degrees = {path.name[2:]: path for path in models[model].glob("tp*")}
    _choose(f"tp profiled for {model} on {gpu}", str(tp), list(degrees))
    folder = degrees[str(tp)]
    tokens, layers = _layers(folder / "layers.csv", tp)
    attention = folder / "attention.csv"
    return Profile(
        files=str(folder.relative_to(root)),
        tokens=tokens,
        layers_us=layers,
        attention=_attention(attention, tp) if attention.is_file() else None,
    )


def _choose(what: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise UnknownChoiceError(what, value, sorted(known))


def _layers(path: Path, tp: int) -> tuple[Array, dict[str, Array]]:
    """One column per layer over the tokens, microseconds."""
    known = (*PER_LAYER, *DENSE_MLP, *ROUTER, *EXPERT, *ONCE, *HEAD, *OWN_ATTENTION)
    times: dict[str, dict[int, float]] = {}
    for line, row in records(path, LAYER_COLUMNS, "ns"):
        layer = row["layer_name"]
        if layer not in known:
            problem = UnknownChoiceError("layer", layer, known)
            raise TraceError(str(path), line, problem.message)
        _same(path, line, "tp_size", row["tp_size"], tp)
        _same(path, line, "kv_cache", row["kv_cache"], 0)
        at = whole(path, line, "input", row["input"])
        if at in times.setdefault(layer, {}):
            raise TraceError(str(path), line, f"second row of {layer} at input={at}")
        ns = duration(path, line, "latency(ns)", row["latency(ns)"])
        times[layer][at] = ns / NS_PER_US
    experts = EXPERT[0] in times
    wanted = (*PER_LAYER, *(ROUTER + EXPERT if experts else DENSE_MLP), *ONCE, *HEAD)
    missing = [name for name in wanted if name not in times]
    if missing:
        raise TraceError(str(path), None, f"has no rows of {', '.join(missing)}")
    grid = sorted(times[PER_LAYER[0]])
    for layer, column in times.items():
        if sorted(column) != grid:
            raise TraceError(str(path), None, f"{layer} has another input grid than the others")
    return np.array(grid, dtype=float), {
        layer: np.array([column[x] for x in grid]) for layer, column in times.items()
    }


def _attention(path: Path, tp: int) -> Attention:
    """Chunks and decode batches; the median of a point that was measured more than once."""
    chunks: dict[tuple[int, int], list[float]] = {}
    decodes: dict[tuple[int, int], list[float]] = {}
    for line, row in records(path, ATTENTION_COLUMNS, "ms"):
        _same(path, line, "num_tensor_parallel_workers", row["num_tensor_parallel_workers"], tp)
        prefill = row["is_prefill"] == "True"
        if not prefill and row["is_prefill"] != "False":
            raise TraceError(str(path), line, f"is_prefill={row['is_prefill']!r} is no truth value")
        kv = whole(path, line, "kv_cache_size", row["kv_cache_size"])
        kind = "prefill" if prefill else "decode"
        time = f"time_stats.attn_{kind}.median"
        us = duration(path, line, time, row[time]) * US_PER_MS
        size = "prefill_chunk_size" if prefill else "batch_size"
        at = whole(path, line, size, row[size])
        # fewer KV tokens than decodes: nothing was read
        if prefill or kv >= at:
            (chunks if prefill else decodes).setdefault((at, kv), []).append(us)
    if not chunks or not decodes:
        raise TraceError(str(path), None, "must hold chunks and decodes")
    return Attention(*_columns(chunks), *_columns(decodes))


def _columns(points: dict[tuple[int, int], list[float]]) -> tuple[Array, Array, Array]:
    size, kv = np.array(list(points), dtype=float).T
    return size, kv, np.array([float(np.median(times)) for times in points.values()])


def _same(path: Path, line: int, name: str, text: str, wanted: int) -> None:
    if whole(path, line, name, text) != wanted:
        raise TraceError(str(path), line, f"{name}={text} in a table of {name}={wanted}")
