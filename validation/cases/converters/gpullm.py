"""Saturation runs of vLLM 0.8.5 (V1, a fork) on an H100 of 64 GB: all requests at once.

One case per row of the table. Where the benchmark's own JSON lies beside it (`raw_json/`), its
median and 99th percentile of TPOT are added; a JSON given alone is a case without a KV size.
"""

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path

from servesim.errors import TraceError
from validation.cases.case import Case, Engine, Limits, Measured, Source
from validation.cases.converted import Converted, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_csv, read_json, require
from validation.cases.workloads import Fixed, OpenLoop

PATTERNS = ("gpullm-adapter/default_latency_runs.csv",)
COLUMNS = (
    *("model", "phase", "run", "max_num_seqs", "num_prompts", "duration_s"),
    *("input_tokens_per_req", "output_tokens_per_req", "output_throughput", "kv_cache_tokens"),
    *("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "mean_tpot_ms"),
    *("mean_itl_ms", "median_itl_ms", "p99_itl_ms"),
)
IN_BENCHMARK = (
    *("num_prompts", "duration", "completed", "total_input_tokens", "total_output_tokens"),
    *("output_throughput", "mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms"),
    *("mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms"),
    *("mean_itl_ms", "median_itl_ms", "p99_itl_ms"),
)
VERSION = "0.8.5"
BATCHED_TOKENS = 2048
GPU = "H100-64GB"
_FILE = re.compile(r"(?P<model>.+)__(?P<phase>input|output)__(?P<run>_(?P<seqs>\d+)__\d+_\d+)")


def convert(path: Path) -> Iterator[Converted]:
    """One case per row of a table, or the one of a benchmark's JSON."""
    if path.suffix == ".json":
        yield Converted(_case(_of_benchmark(path), path.name))
        return
    for row in read_csv(path, COLUMNS):
        name = f"{row.text('model')}__{row.text('phase')}__{row.text('run')}.json"
        beside = path.parent / "raw_json" / name
        if beside.is_file():
            both = {**row.values, **_tpot_columns(_benchmark(beside))}
            row = Row(row.file, row.line, both)
        yield Converted(_case(row, path.name))


def _case(row: Row, file: str) -> Case:
    found = place("vllm", row.text("model"), GPU)
    run = slug(row.text("model"), row.text("phase"), row.text("run"))
    requests = row.whole("num_prompts")
    return Case(
        name=slug("gpullm", run),
        source=Source(
            name="gpullm",
            repository="github.com/FerranAgulloLopez/GPULLMAdapterOptimization",
            commit="bae36e2dad9615d851ff32d10a96633d21615647",
            licence="Apache-2.0",
            file=file,
            row=run,
        ),
        engine=Engine("vllm", VERSION),
        model=found.model,
        hardware=found.hardware,
        limits=Limits(
            max_num_seqs=row.whole("max_num_seqs"),
            max_num_batched_tokens=BATCHED_TOKENS,
            kv_cache_tokens=row.whole_or_none("kv_cache_tokens"),
            enable_prefix_caching=False,
        ),
        workload=OpenLoop(
            rate_rps=inf,
            arrival="constant",
            num_requests=requests,
            prompt=Fixed(round(row.positive("input_tokens_per_req"))),
            output=Fixed(round(row.positive("output_tokens_per_req"))),
        ),
        measured=_measured(row),
        counted_from="sent",
        not_covered=found.not_covered,
        notes=("the engine is a fork of the release",),
    )


def _measured(row: Row) -> Measured:
    statistics = {"mean": "mean", "p50": "median", "p99": "p99"}
    metrics = ("ttft", "tpot", "itl") if row.number("output_tokens_per_req") > 1 else ("ttft",)
    found = measured(
        row, {f"{m}_ms": {s: f"{c}_{m}_ms" for s, c in statistics.items()} for m in metrics}
    )
    totals = {"makespan_s": "duration_s", "output_tokens_per_s": "output_throughput"}
    return found | measured(row, {metric: {"value": c} for metric, c in totals.items()})


def _benchmark(path: Path) -> Row:
    content = read_json(path)
    if not isinstance(content, dict):
        raise TraceError(str(path), None, "must be an object")
    require(path, list(content), IN_BENCHMARK)
    return Row(str(path), 1, content)


def _tpot_columns(benchmark: Row) -> dict[str, object]:
    names = ("median_tpot_ms", "p99_tpot_ms")
    return {name: benchmark.values[name] for name in names}


def _of_benchmark(path: Path) -> Row:
    """The JSON in the columns of the table; what it does not hold is in its name."""
    named = _FILE.fullmatch(path.stem)
    if named is None:
        reason = "must be named MODEL__PHASE___SEQS__IN_OUT.json, which says what the file does not"
        raise TraceError(str(path), None, reason)
    row = _benchmark(path)
    completed = row.whole("completed")
    return Row(
        row.file,
        row.line,
        {
            **row.values,
            "model": named["model"],
            "phase": named["phase"],
            "run": named["run"],
            "max_num_seqs": named["seqs"],
            "duration_s": row.number("duration"),
            "input_tokens_per_req": row.number("total_input_tokens") / completed,
            "output_tokens_per_req": row.number("total_output_tokens") / completed,
        },
    )
