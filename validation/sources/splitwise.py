"""Reader of Splitwise's measured prompt and token times, data/perf_model.csv (MIT).

Milliseconds of whole vLLM batches, 5 repeats each. Left out, with the reason:

* `h100-80gb-pcap`: not measured, its prompt times are 1.3 × those of `h100-80gb`;
* batches of 64 at tensor_parallel 2: out of memory, a prompt batch "takes" an eighth of half of it;
* replies of 1,024 tokens and more: cut by the end of the text, so their mean context is unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from servesim.errors import TraceError
from validation.sources.tables import duration, records, whole

REPOSITORY = "github.com/Mutinifni/splitwise-sim"
COMMIT = "8f99e7dc9b407f4ce2488d03dd44c0b8b946dab0"
LICENCE = "MIT"
FILE = "perf_model.csv"

SYNTHETIC = ("h100-80gb-pcap",)
THRASHING_TP, THRASHING_BATCH = 2, 64
CUT_REPLY_TOKENS = 1024
COLUMNS = (
    "model",
    "hardware",
    "tensor_parallel",
    "prompt_size",
    "batch_size",
    "token_size",
    "prompt_time",
    "token_time",
    "e2e_time",
)


@dataclass(frozen=True)
class Cell:
    """A batch of equal requests; the medians of its repeats.

    Attributes:
        model: the source's name.
        hardware: the source's name.
        tp: tensor-parallel ranks.
        prompt_tokens: of each request.
        batch: requests.
        reply_tokens: of each request.
        prompt_ms: of the one step that computes all prompts.
        token_ms: mean of the decode steps after it.
    """

    model: str
    hardware: str
    tp: int
    prompt_tokens: int
    batch: int
    reply_tokens: int
    prompt_ms: float
    token_ms: float


def read_cells(root: Path) -> list[Cell]:
    """What was measured and is usable, in the file's order.

    Raises:
        TraceError: the file, named with its line, is not what it should be.
    """
    path = root / FILE
    times: dict[tuple[str, str, int, int, int, int], list[tuple[float, float]]] = {}
    for line, row in records(path, COLUMNS, "ms"):
        sizes = [
            whole(path, line, name, row[name])
            for name in ("tensor_parallel", "prompt_size", "batch_size", "token_size")
        ]
        if min(sizes) < 1:
            raise TraceError(str(path), line, f"sizes must be 1 or more, not {sizes}")
        prompt_ms, token_ms, e2e_ms = (
            duration(path, line, name, row[name])
            for name in ("prompt_time", "token_time", "e2e_time")
        )
        if prompt_ms > e2e_ms:
            raise TraceError(str(path), line, "prompt_time is above e2e_time: all are ms")
        tp, prompt, batch, reply = sizes
        if _usable(row["hardware"], tp, batch, reply):
            key = (row["model"], row["hardware"], tp, prompt, batch, reply)
            times.setdefault(key, []).append((prompt_ms, token_ms))
    return [Cell(*key, *_medians(repeats)) for key, repeats in times.items()]


def _usable(hardware: str, tp: int, batch: int, reply: int) -> bool:
    thrashes = tp == THRASHING_TP and batch >= THRASHING_BATCH
    return hardware not in SYNTHETIC and not thrashes and reply < CUT_REPLY_TOKENS


def _medians(repeats: Iterable[tuple[float, float]]) -> tuple[float, float]:
    prompts, tokens = zip(*repeats, strict=True)
    return median(prompts), median(tokens)
