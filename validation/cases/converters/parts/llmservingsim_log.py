"""LLMServingSim's runs that are known by a log, or by their published statistics alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servesim.errors import TraceError
from validation.cases.case import Case, Engine, Limits, Measured, Source
from validation.cases.converted import Converted, dtype_of, place, requests_csv
from validation.cases.converters.parts.llmservingsim_blocks import (
    BLOCK_SIZE,
    of_totals,
    read_workload,
)
from validation.cases.published import slug
from validation.cases.rows import read_csv, read_json, read_text
from validation.cases.workloads import Requests

COMMIT = "5daddb21a545658d5150b535712d0494584b5278"
ARTIFACT_COMMIT = "f4ab208cf1db1c41a81401ed0e58752dfc960fb1"  # branch ispass26-artifact
# printed by `vllm bench serve` at its end
_PRINTED = {
    "Successful requests": "requests",
    "Benchmark duration (s)": "makespan_s.value",
    "Total input tokens": "prompt_tokens",
    "Total generated tokens": "output_tokens",
    "Output token throughput (tok/s)": "output_tokens_per_s.value",
    **{
        f"{label} {metric} (ms)": f"{metric.lower()}_ms.{statistic}"
        for metric in ("TTFT", "TPOT", "ITL")
        for label, statistic in (("Mean", "mean"), ("Median", "p50"), ("P99", "p99"))
    },
}
_PRINTED_LINE = re.compile(r"^([A-Z][^:\n]*):\s+([\d.]+)\s*$", re.MULTILINE)
_KV_SIZE = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_VERSION = re.compile(r"vLLM API server version (\S+)")
_ASKED = re.compile(r"non-default args: (\{.*\})")
_HITS, _QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
# a run of the paper that has no file in the repository
UNLOGGED: Measured = {
    "ttft_ms": {"mean": 61.5},
    "tpot_ms": {"mean": 26.72},
    "output_tokens_per_s": {"value": 1833.89},
}


def source(path: Path, commit: str, row: str | None = None) -> Source:
    """Where `path` was published."""
    parts = path.parts
    below = parts[parts.index("llmservingsim") + 1 :] if "llmservingsim" in parts else parts[-1:]
    repository = "github.com/casys-kaist/LLMServingSim"
    return Source("llmservingsim", repository, commit, "MIT", "/".join(below), row)


def gpu_of(config: Mapping[str, Any], path: Path) -> str:
    """The GPU in the simulator's own description of the run."""
    try:
        return str(config["nodes"][0]["instances"][0]["hardware"])
    except (KeyError, IndexError, TypeError):
        raise TraceError(str(path), None, "lacks nodes[0].instances[0].hardware") from None


def logged(path: Path) -> Converted:
    """The case of a log that holds the server's start and the benchmark's end."""
    text = read_text(path)
    printed = _printed(text, path)
    model = _found(re.compile(r"'model': '([^']+)'"), text, path)
    tp = int(_found(re.compile(r"tensor_parallel_size=(\d+)"), text, path))
    config = path.parents[2] / "config" / f"{path.parent.name}_config.json"
    content = read_json(config)
    found = place("vllm", model, gpu_of(content if isinstance(content, dict) else {}, config), tp)
    name = slug("llmservingsim", found.hardware, found.model, path.parent.name)
    totals = [int(printed.pop(key)) for key in ("requests", "prompt_tokens", "output_tokens")]
    workload = of_totals(path, *totals)
    if workload is None:
        reason = f"no workload has its {totals[0]} requests with {totals[1]} prompt tokens"
        raise TraceError(str(path), None, reason)
    measured: Measured = {}
    for key, value in printed.items():
        metric, _, statistic = key.partition(".")
        measured.setdefault(metric, {})[statistic] = value
    case = Case(
        name=name,
        source=source(path, ARTIFACT_COMMIT),
        engine=Engine("vllm", _release(_found(_VERSION, text, path))),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        dtype=dtype_of(model, _found(re.compile(r"dtype=torch\.(\w+)"), text, path)),
        limits=_limits(text, path),
        workload=Requests(f"{name}.csv", BLOCK_SIZE),
        measured=measured | _prefix_hits(path.parent),
        counted_from="sent",
        not_covered=found.not_covered,
    )
    return Converted(case, {f"{name}.csv": requests_csv(*workload)})


def unlogged(path: Path) -> Converted:
    """Llama-3.1-70B on four H100, of which only three statistics are known."""
    found = place("vllm", "meta-llama/Llama-3.1-70B", "H100", 4)
    name = slug("llmservingsim", found.hardware, found.model, "tp4")
    case = Case(
        name=name,
        source=source(path, ARTIFACT_COMMIT, "figure 5, SD on H100"),
        engine=Engine("vllm"),
        model=found.model,
        hardware=found.hardware,
        tp=4,
        workload=Requests(f"{name}.csv", BLOCK_SIZE),
        measured=UNLOGGED,
        counted_from="sent",
        not_covered=found.not_covered,
        notes=("sanity only: the engine's release and limits are not recorded",),
    )
    return Converted(case, {f"{name}.csv": requests_csv(*read_workload(path))})


def _found(pattern: re.Pattern[str], text: str, path: Path) -> str:
    found = pattern.search(text)
    if found is None:
        raise TraceError(str(path), None, f"has no line like {pattern.pattern}")
    return found[1]


def _printed(text: str, path: Path) -> dict[str, float]:
    found = {}
    for label, number in _PRINTED_LINE.findall(text):
        if label in _PRINTED:
            found[_PRINTED[label]] = float(number)
    for label, key in _PRINTED.items():
        if key not in found:
            raise TraceError(str(path), None, f"does not end with the benchmark's `{label}: …`")
    return found


def _release(version: str) -> str:
    """0.13.0rc2.dev79+g8f8fda261 → 0.13.0rc2."""
    return version.partition(".dev")[0].partition("+")[0]


def _limits(text: str, path: Path) -> Limits:
    asked = _found(_ASKED, text, path)

    def whole(name: str) -> int | None:
        found = re.search(rf"'{name}': (\d+)", asked)
        return int(found[1]) if found else None

    def flag(name: str) -> bool | None:
        found = re.search(rf"'{name}': (True|False)", asked)
        return found[1] == "True" if found else None

    return Limits(
        max_num_seqs=whole("max_num_seqs"),
        max_num_batched_tokens=whole("max_num_batched_tokens"),
        max_model_len=whole("max_model_len"),
        kv_cache_tokens=int(_found(_KV_SIZE, text, path).replace(",", "")),
        block_size=whole("block_size"),
        enable_prefix_caching=flag("enable_prefix_caching"),
        enforce_eager=flag("enforce_eager"),
    )


def _prefix_hits(folder: Path) -> Measured:
    """Counters at the end of the run, where they were sampled."""
    found: Measured = {}
    for path in sorted(folder.glob("kv_metrics*.csv")):
        rows = read_csv(path, (_HITS, _QUERIES))
        if rows:
            found["prefix_hit_tokens"] = {"value": rows[-1].number(_HITS)}
            found["prefix_query_tokens"] = {"value": rows[-1].number(_QUERIES)}
    return found
