"""Reader of aiconfigurator's kernel tables (Apache-2.0): one operation alone, on one rank.

Tables are milliseconds there and microseconds here. A table is found by GPU, operation, engine and
release; where a release was not measured, the nearest one is read, and says so in `version`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from validation.sources.tables import Array

REPOSITORY = "github.com/ai-dynamo/aiconfigurator"
COMMIT = "095f58a51c4ca8e61b66ec108d86f223f8d559ce"
LICENCE = "Apache-2.0"

US_PER_MS = 1e3
LATENCY = "latency"
KV_NAMES = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}
GEMM_NAMES = {"bf16": "bfloat16", "fp16": "bfloat16"}  # others are called as we call them


@dataclass(frozen=True)
class Table:
    """Measured times of one operation.

    Attributes:
        file: within the source's folder.
        version: release of the engine that was measured.
        columns: coordinates, whole numbers; what they are is the reading function's to say.
        us: time at each.
    """

    file: str
    version: str
    columns: dict[str, Array]
    us: Array

    def where(self, **values: float) -> "Table":
        """The rows with these values."""
        mask = np.ones(len(self.us), dtype=bool)
        for name, value in values.items():
            mask &= self.columns[name] == value
        kept = {name: column[mask] for name, column in self.columns.items()}
        return Table(self.file, self.version, kept, self.us[mask])


@dataclass(frozen=True)
class Place:
    """Where to look: the source's folder, a GPU and an engine's release (None: the newest)."""

    root: Path
    gpu: str
    engine: str
    version: str | None

    def gemm(self, dtype: str) -> Table:
        """Matrix products: m rows of activations, n × k weights of `dtype`."""
        named = (("gemm_dtype", GEMM_NAMES.get(dtype, dtype)),)
        table = _read(self, _Asked("gemm", "gemm_perf", ("m", "n", "k"), named))
        return _rows(table, table.columns["m"] > 0)

    def prefill_attention(self, kv_dtype: str, head_dim: int, window: int) -> Table:
        """One layer's attention of `batch` prompts of `tokens` each, with nothing before them."""
        table = _read(self, _attention_of("context_attention_perf", ("isl",), kv_dtype))
        return _calls(table, head_dim, window, table.columns["isl"])

    def decode_attention(self, kv_dtype: str, head_dim: int, window: int) -> Table:
        """One layer's attention of `batch` decodes over `tokens` of KV each."""
        table = _read(self, _attention_of("generation_attention_perf", ("isl", "step"), kv_dtype))
        return _calls(table, head_dim, window, table.columns["isl"] + table.columns["step"])

    def all_reduce(self, *, graph: bool) -> Table:
        """One sum over `num_gpus` of `message_size` elements of bf16, in a CUDA graph or launched.

        The tables do not name the unit. NCCL's own, on H200, settles it: one `message_size` takes
        463 µs in half and 261 µs in int8 between two GPUs, 463 µs being int8's at twice the size.
        Above vLLM's 8 MiB for its own kernel, at 2**22, the engine's table is NCCL's of half.

        An engine whose table holds one variant only is read as it is.
        """
        columns, named = ("num_gpus", "message_size"), (("allreduce_dtype", "bfloat16"),)
        kind = (("backend", f"{self.engine}_{'graph' if graph else 'eager'}"),)
        return _read(self, _Asked("comm", "custom_allreduce_perf", columns, named, if_there=kind))

    def moe(self, dtype: str) -> Table:
        """Routed experts of one layer; column `skewed` is 0 where tokens are routed evenly."""
        sizes = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
        columns = ("num_tokens", *sizes)
        named = (("moe_dtype", GEMM_NAMES.get(dtype, dtype)),)
        return _read(self, _Asked("moe", "moe_perf", columns, named, skew="distribution"))


@dataclass(frozen=True)
class _Asked:
    """A table, and what of it.

    Attributes:
        op: its folder.
        name: its file.
        columns: of whole numbers.
        named: text columns, and the value that a row must have.
        may_lack: columns of whole numbers that are 0 where the file has none.
        if_there: like `named`, of columns that not every file has.
        skew: text column of a distribution.
    """

    op: str
    name: str
    columns: tuple[str, ...]
    named: tuple[tuple[str, str], ...]
    may_lack: tuple[str, ...] = ()
    if_there: tuple[tuple[str, str], ...] = ()
    skew: str | None = None


def _attention_of(name: str, lengths: tuple[str, ...], kv_dtype: str) -> _Asked:
    columns = ("batch_size", *lengths, "num_heads", "num_key_value_heads", "head_dim")
    named = (("kv_cache_dtype", KV_NAMES[kv_dtype]), ("attn_dtype", "bfloat16"))
    return _Asked("attention", name, columns, named, ("window_size",))


@cache
def _read(place: Place, asked: _Asked) -> Table:
    """A table of a place, as far as its text columns are as asked for."""
    folder = place.root / "data" / place.gpu / asked.op / place.engine
    version = nearest_version(folder, place.version, f"{asked.name}.parquet")
    path = folder / version / f"{asked.name}.parquet"
    file = pq.ParquetFile(path)
    present = file.schema_arrow.names
    _require(path, present, (*asked.columns, *(name for name, _ in asked.named), LATENCY))
    named = (*asked.named, *((name, value) for name, value in asked.if_there if name in present))
    numbers = (*asked.columns, *(name for name in asked.may_lack if name in present))
    texts = (*(name for name, _ in named), *((asked.skew,) if asked.skew else ()))
    read = file.read(columns=[*numbers, *texts, LATENCY]).to_pydict()
    mask = np.ones(len(read[LATENCY]), dtype=bool)
    for column, value in named:
        known = sorted({str(text) for text in read[column]})
        if value not in known:
            raise UnknownChoiceError(f"{column} in {path}", value, known)
        mask &= np.array([text == value for text in read[column]])
    found = {column: _numbers(path, column, read[column])[mask] for column in numbers}
    lacking = (name for name in asked.may_lack if name not in present)
    found |= {name: np.zeros(int(mask.sum())) for name in lacking}
    if asked.skew:
        found["skewed"] = np.array([_skew(text) for text in read[asked.skew]])[mask]
    us = US_PER_MS * _numbers(path, LATENCY, read[LATENCY], positive=True)[mask]
    return Table(str(path.relative_to(place.root)), version, found, us)


def architecture(root: Path, gpu: str) -> int:
    """Compute capability of `gpu` (90 is 9.0), from the source's description of it."""
    path = root / "systems" / f"{gpu}.yaml"
    if not path.is_file():
        folder = root / "systems"
        raise UnknownChoiceError("gpu", gpu, sorted(p.stem for p in folder.glob("*.yaml")))
    tree: Any = yaml.safe_load(path.read_text())
    try:
        return int(tree["gpu"]["sm_version"])
    except (KeyError, TypeError, ValueError):
        raise TraceError(str(path), None, "has no whole number 'gpu.sm_version'") from None


def nearest_version(folder: Path, wanted: str | None, file: str) -> str:
    """The measured release nearest to `wanted`, the later of two; None is the newest.

    Raises:
        MissingDataError: nothing of the kind was measured.
    """
    found = [path.parent.name for path in folder.glob(f"*/{file}")]
    if not found:
        raise MissingDataError(f"no {file} in {folder}/VERSION: it is part of {REPOSITORY}")
    newest_first = sorted(found, key=_numbers_of, reverse=True)
    if wanted is None:
        return newest_first[0]
    return min(newest_first, key=lambda version: _distance(version, wanted))


def _numbers_of(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _distance(version: str, wanted: str) -> tuple[int, ...]:
    numbers = zip(_numbers_of(version), _numbers_of(wanted), strict=False)
    return tuple(abs(one - other) for one, other in numbers)


def _calls(table: Table, head_dim: int, window: int, tokens: Array) -> Table:
    columns = table.columns
    for name, value in (("head_dim", head_dim), ("window_size", window)):
        known = sorted({int(x) for x in columns[name]})
        if value not in known:
            raise UnknownChoiceError(f"{name} in {table.file}", str(value), map(str, known))
    names = {"batch": "batch_size", "heads": "num_heads", "kv_heads": "num_key_value_heads"}
    renamed = {ours: columns[theirs] for ours, theirs in names.items()} | {"tokens": tokens}
    mask = (columns["head_dim"] == head_dim) & (columns["window_size"] == window)
    return _rows(Table(table.file, table.version, renamed, table.us), mask)


def _rows(table: Table, mask: np.ndarray[Any, Any]) -> Table:
    kept = {name: column[mask] for name, column in table.columns.items()}
    return Table(table.file, table.version, kept, table.us[mask])


def _require(path: Path, present: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in present:
            columns = ", ".join(present)
            raise TraceError(str(path), None, f"has no column '{name}', only {columns}")


def _numbers(path: Path, name: str, values: list[Any], *, positive: bool = False) -> Array:
    try:
        column = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise TraceError(str(path), None, f"column '{name}' does not hold numbers only") from None
    bad = ~np.isfinite(column) | (column < 0) | (positive & (column == 0))
    if bad.any():
        row = int(bad.argmax())
        what = "positive" if positive else "not negative"
        reason = f"column '{name}', row {row}: {column[row]:g} must be finite and {what}"
        raise TraceError(str(path), None, reason)
    return column


def _skew(distribution: str) -> float:
    """Exponent of a power law, 0 for balanced."""
    return float(distribution.rpartition("_")[2]) if distribution != "balanced" else 0.0
