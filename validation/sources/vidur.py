"""Reader of Vidur's operator profiles (MIT): dense operators of one layer, and all-reduces.

Times in its tables are milliseconds, medians of 20 and more repeats; the all-reduces are NCCL's,
launched from the host one by one, so small ones show the launch (about 30 µs), not the link.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from validation.sources.tables import Array, duration, number, records, whole

REPOSITORY = "github.com/microsoft/vidur"
COMMIT = "7d47513363ec447a741ac5e47241580b47724fbf"
LICENCE = "MIT"
US_PER_MS = 1e3
COMPUTE = Path("data") / "profiling" / "compute"
NETWORK = Path("data") / "profiling" / "network"

# of one decoder layer; `emb` runs once per step, `add` twice per layer
OPERATORS = (
    "emb",
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    "post_attention_layernorm",
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
)
TOKENS, RANKS = "num_tokens", "num_tensor_parallel_workers"
ALL_REDUCE_COLUMNS = (
    "time_stats.all_reduce.median",
    "num_workers",
    "size",
    "collective",
    "devices_per_node",
)


@dataclass(frozen=True)
class Operators:
    """Operators of one layer on one rank.

    Attributes:
        files: within the repository.
        tokens: of each row, increasing.
        us: by operator, at each of `tokens`; the median where it was measured more than once.
    """

    files: str
    tokens: Array
    us: dict[str, Array]


@dataclass(frozen=True)
class AllReduces:
    """All-reduces between the ranks of one node.

    Attributes:
        files: within the repository.
        size_bytes: of the reduced tensor, increasing.
        us: of each.
    """

    files: str
    size_bytes: Array
    us: Array


def read_operators(root: Path, gpu: str, model: str, tp: int) -> Operators:
    """Operators of `model` (last part of its name) on `gpu` (the source's folder name).

    Raises:
        MissingDataError: no such folder under `root`.
        UnknownChoiceError: no such GPU, model or tp.
        TraceError: the file, named with its line, is not what it should be.
    """
    base = _folder(root, COMPUTE)
    _choose("gpu", gpu, [path.name for path in base.iterdir()])
    models = {path.parent.name: path for path in (base / gpu).glob("*/*/mlp.csv")}
    _choose(f"model profiled on {gpu}", model, list(models))
    path = models[model]
    names = {op: f"time_stats.{op}.median" for op in OPERATORS}
    rows: dict[int, list[list[float]]] = {}
    degrees = set()
    for line, row in records(path, (TOKENS, RANKS, *names.values()), "ms"):
        degree = whole(path, line, RANKS, row[RANKS])
        degrees.add(degree)
        if degree != tp:
            continue
        us = [number(path, line, k, row[k]) * US_PER_MS for k in names.values()]
        rows.setdefault(whole(path, line, TOKENS, row[TOKENS]), []).append(us)
    _choose(f"tp profiled for {model} on {gpu}", str(tp), [str(d) for d in sorted(degrees)])
    grid = sorted(rows)
    columns = np.array([np.median(rows[tokens], axis=0) for tokens in grid]).T
    return Operators(
        str(path.relative_to(root)),
        np.array(grid, dtype=float),
        dict(zip(OPERATORS, columns, strict=True)),
    )


def read_all_reduces(root: Path, network: str, ranks: int) -> AllReduces:
    """All-reduces of `ranks` GPUs of one machine of `network` (the source's folder name).

    Raises:
        MissingDataError: no such folder under `root`.
        UnknownChoiceError: no such network or number of ranks.
        TraceError: the file, named with its line, is not what it should be.
    """
    base = _folder(root, NETWORK)
    _choose("network", network, [path.name for path in base.iterdir()])
    path = base / network / "all_reduce.csv"
    times: dict[int, list[float]] = {}
    sizes = set()
    for line, row in records(path, ALL_REDUCE_COLUMNS, "ms"):
        if row["collective"] != "all_reduce":
            raise TraceError(str(path), line, f"collective={row['collective']!r} is no all_reduce")
        workers = whole(path, line, "num_workers", row["num_workers"])
        if whole(path, line, "devices_per_node", row["devices_per_node"]) != workers:
            continue  # between machines
        sizes.add(workers)
        if workers == ranks:
            size = whole(path, line, "size", row["size"])
            us = duration(path, line, ALL_REDUCE_COLUMNS[0], row[ALL_REDUCE_COLUMNS[0]]) * US_PER_MS
            times.setdefault(size, []).append(us)
    _choose(f"ranks profiled on {network}", str(ranks), [str(n) for n in sorted(sizes)])
    grid = sorted(times)
    medians = np.array([float(np.median(times[size])) for size in grid])
    return AllReduces(str(path.relative_to(root)), np.array(grid, dtype=float), medians)


def _folder(root: Path, part: Path) -> Path:
    if not (root / part).is_dir():
        raise MissingDataError(f"no {part} in {root}: it is part of {REPOSITORY}")
    return root / part


def _choose(what: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise UnknownChoiceError(what, value, sorted(known))
