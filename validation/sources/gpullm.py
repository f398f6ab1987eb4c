"""Reader of saturation runs and scheduler time stamps of vLLM 0.8.5 (Apache-2.0).

From GPULLMAdapterOptimization: H100 64 GB, all requests at once, 2,048 batched tokens, no
adapters, no prefix caching. One table of runs, one file of steps per run, one JSON per benchmark.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from servesim.errors import TraceError
from validation.sources.tables import Array, duration, number, records, whole

REPOSITORY = "github.com/FerranAgulloLopez/GPULLMAdapterOptimization"
COMMIT = "bae36e2dad9615d851ff32d10a96633d21615647"
LICENCE = "Apache-2.0"
RUNS = "default_latency_runs.csv"
US_PER_S = 1e6

RUN_COLUMNS = (
    "model",
    "phase",
    "run",
    "max_num_seqs",
    "num_prompts",
    "duration_s",
    "input_tokens_per_req",
    "output_tokens_per_req",
    "mean_ttft_ms",
    "mean_tpot_ms",
    "kv_cache_tokens",
    "median_step_period_ms",
    "median_sched_time_us",
)
STEP_COLUMNS = ("timestamp_s", "scheduler_time_s")


@dataclass(frozen=True)
class Run:
    """A run with all requests at time zero.

    Attributes:
        model: the source's name.
        phase: "input" (one token is generated) or "output" (prompts of a few tokens).
        run: name within the source.
        max_num_seqs: limit of the batch.
        num_prompts: requests.
        duration_s: of the whole run.
        prompt_tokens: per request, start token included.
        reply_tokens: per request.
        mean_ttft_ms: as measured by the client.
        mean_tpot_ms: the same; 0 for one token.
        kv_tokens: slots of the KV cache, None where the engine's log is missing.
        step_period_ms: median time from step to step, None likewise.
        scheduler_us: median time in the scheduler, None likewise.
    """

    model: str
    phase: str
    run: str
    max_num_seqs: int
    num_prompts: int
    duration_s: float
    prompt_tokens: int
    reply_tokens: int
    mean_ttft_ms: float
    mean_tpot_ms: float
    kv_tokens: int | None
    step_period_ms: float | None
    scheduler_us: float | None


def read_runs(root: Path) -> list[Run]:
    """All runs of the table.

    Raises:
        TraceError: the table, named with its line, is not what it should be.
    """
    path = root / RUNS
    return [_run(path, line, row) for line, row in records(path, RUN_COLUMNS)]


def _run(path: Path, line: int, row: dict[str, str]) -> Run:
    if row["phase"] not in ("input", "output"):
        raise TraceError(str(path), line, f"phase={row['phase']!r} must be input or output")

    def count(name: str) -> int:
        return whole(path, line, name, row[name])

    def amount(name: str) -> float:
        return number(path, line, name, row[name])

    return Run(
        model=row["model"],
        phase=row["phase"],
        run=row["run"],
        max_num_seqs=count("max_num_seqs"),
        num_prompts=count("num_prompts"),
        duration_s=duration(path, line, "duration_s", row["duration_s"]),
        prompt_tokens=count("input_tokens_per_req"),
        reply_tokens=round(amount("output_tokens_per_req")),
        mean_ttft_ms=amount("mean_ttft_ms"),
        mean_tpot_ms=amount("mean_tpot_ms"),
        kv_tokens=count("kv_cache_tokens") if row["kv_cache_tokens"] else None,
        step_period_ms=amount("median_step_period_ms") if row["median_step_period_ms"] else None,
        scheduler_us=amount("median_sched_time_us") if row["median_sched_time_us"] else None,
    )


@dataclass(frozen=True)
class Steps:
    """Scheduler calls of one run.

    Attributes:
        at_s: when each was made, on the machine's own clock.
        scheduler_us: how long each took.
    """

    at_s: Array
    scheduler_us: Array

    @property
    def period_s(self) -> Array:
        """From each call to the next one."""
        return np.diff(self.at_s)


def read_steps(path: Path) -> Steps:
    """One file of scheduler time stamps.

    Raises:
        TraceError: the file, named with its line, is not what it should be.
    """
    at_s: list[float] = []
    spent_us: list[float] = []
    for line, row in records(path, STEP_COLUMNS, "s"):
        stamp, spent = (number(path, line, name, row[name]) for name in STEP_COLUMNS)
        if at_s and stamp <= at_s[-1]:
            raise TraceError(str(path), line, f"time stamps run backwards: {at_s[-1]}, {stamp}")
        at_s.append(stamp)
        spent_us.append(spent * US_PER_S)
    return Steps(np.array(at_s), np.array(spent_us))


@dataclass(frozen=True)
class Benchmark:
    """The client's own totals of one run."""

    num_prompts: int
    completed: int
    duration_s: float
    prompt_tokens: int
    reply_tokens: int
    mean_ttft_ms: float
    mean_tpot_ms: float


BENCHMARK_KEYS = (
    "num_prompts",
    "completed",
    "duration",
    "total_input_tokens",
    "total_output_tokens",
    "mean_ttft_ms",
    "mean_tpot_ms",
)


def read_benchmark(path: Path) -> Benchmark:
    """One JSON of raw_json/.

    Raises:
        TraceError: it is missing, no JSON, or lacks a number.
    """
    if not path.is_file():
        raise TraceError(str(path), None, "is missing")
    try:
        tree: Any = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise TraceError(str(path), error.lineno, f"is no JSON: {error.msg}") from None
    for key in BENCHMARK_KEYS:
        value = tree.get(key) if isinstance(tree, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise TraceError(str(path), None, f"{key}={value!r} must be a number, 0 or more")
    counts = [int(tree[key]) for key in ("num_prompts", "completed")]
    totals = [int(tree[key]) for key in ("total_input_tokens", "total_output_tokens")]
    times = [float(tree[key]) for key in ("mean_ttft_ms", "mean_tpot_ms")]
    return Benchmark(counts[0], counts[1], float(tree["duration"]), *totals, *times)
