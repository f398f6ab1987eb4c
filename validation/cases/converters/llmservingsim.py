"""LLMServingSim's measured vLLM runs: per-request stamps, and logs of `vllm bench serve`.

A run is a folder with `requests.jsonl` (stamps) and `meta.json` (engine settings); its statistics
are computed from the stamps, counted from `queued_ts`, which is on the clock of the others. A log
is that of the server and of the benchmark, with settings and statistics printed in it.

The prompts' contents are block ids of the workload whose lengths are, request for request, those of
the run (two models with one tokeniser share a workload); without one nothing is shared.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from servesim.errors import TraceError
from servesim.metrics.distribution import Distribution
from validation.cases.case import Case, Engine, Limits, Measured
from validation.cases.converted import Converted, dtype_of, place, requests_csv
from validation.cases.converters.parts import llmservingsim_log as logs
from validation.cases.converters.parts.llmservingsim_blocks import BLOCK_SIZE, of_lengths
from validation.cases.published import slug
from validation.cases.rows import Row, read_json, read_jsonl, read_text
from validation.cases.workloads import Requests

PATTERNS = (
    "llmservingsim/bench/examples/*/*/vllm/requests.jsonl",
    "llmservingsim/ispass26-artifact/evaluation/artifacts/*/raw_data/*/*_vllm.txt",
    "llmservingsim/ispass26-artifact/dataset/sharegpt_req300_rate10_llama.blocks16.jsonl",
)
STAMPS = ("queued_ts", "first_token_ts", "last_token_ts")
LENGTHS = ("input_toks", "output_toks")
_PEER_ROW = re.compile(r"(\w+) (\w+)\s+[\d.]+\s+([\d.]+)\s")
_PEER_METRICS = {"TTFT": "ttft_ms", "TPOT": "tpot_ms", "Latency": "e2e_ms"}
_PEER_STATISTICS = {"Mean": "mean", "Median": "p50", "P90": "p90", "P95": "p95", "P99": "p99"}


def convert(path: Path) -> Iterator[Converted]:
    """The case of one run: of its stamps, or of its log."""
    if path.name.endswith(".blocks16.jsonl"):
        yield logs.unlogged(path)
    elif path.suffix == ".jsonl":
        yield _run(path)
    else:
        yield logs.logged(path)


def _run(path: Path) -> Converted:
    rows = read_jsonl(path, (*LENGTHS, *STAMPS))
    if not rows:
        raise TraceError(str(path), None, "has no requests")
    settings = _object(path.with_name("meta.json"), ("model", "vllm_version", "engine_kwargs"))
    model, engine = str(settings["model"]), settings["engine_kwargs"]
    asked = Row(str(path.with_name("meta.json")), 1, engine)
    tp = asked.whole("tensor_parallel_size")
    found = place("vllm", model, _gpu(path), tp)
    name = slug("llmservingsim", found.hardware, found.model)
    lengths = [(row.whole(LENGTHS[0]), row.whole(LENGTHS[1])) for row in rows]
    blocks = of_lengths(path, lengths)
    case = Case(
        name=name,
        source=logs.source(path, logs.COMMIT),
        engine=Engine("vllm", str(settings["vllm_version"])),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        dp=asked.whole("data_parallel_size"),
        expert_parallel=asked.flag("enable_expert_parallel"),
        dtype=dtype_of(model, asked.text_or_none("dtype")),
        limits=Limits(
            max_num_seqs=asked.whole_or_none("max_num_seqs"),
            max_num_batched_tokens=asked.whole_or_none("max_num_batched_tokens"),
            max_model_len=asked.whole_or_none("max_model_len"),
        ),
        workload=Requests(f"{name}.csv", BLOCK_SIZE if blocks else None),
        measured=_statistics(rows),
        counted_from="queued",
        peers=_peers(path.parents[1] / "validation" / "summary.txt"),
        not_covered=found.not_covered,
        notes=() if blocks else ("the prompts' contents are not recorded: nothing is shared",),
    )
    return Converted(case, {f"{name}.csv": _requests(rows, lengths, blocks)})


def _requests(
    rows: Sequence[Row], lengths: Sequence[tuple[int, int]], blocks: list[list[int]] | None
) -> str:
    """By the time they were queued: a run of several engines is logged one after the other."""
    queued = [row.number("queued_ts") for row in rows]
    order = sorted(range(len(rows)), key=queued.__getitem__)
    requests = [(queued[i] - queued[order[0]], *lengths[i]) for i in order]
    return requests_csv(requests, blocks and [blocks[i] for i in order])


def _statistics(rows: Sequence[Row]) -> Measured:
    """From the stamps; replies of one token have no TPOT."""
    stamps = [tuple(row.number(column) for column in STAMPS) for row in rows]
    replies = [row.whole("output_toks") for row in rows]
    latencies = {
        "ttft_ms": [first - queued for queued, first, _ in stamps],
        "tpot_ms": [
            (last - first) / (reply - 1)
            for (_, first, last), reply in zip(stamps, replies, strict=True)
            if reply > 1
        ],
        "e2e_ms": [last - queued for queued, _, last in stamps],
    }
    found = {metric: _summary(values) for metric, values in latencies.items() if values}
    makespan = max(last for *_, last in stamps) - min(queued for queued, *_ in stamps)
    found["makespan_s"] = {"value": round(makespan, 6)}
    found["output_tokens_per_s"] = {"value": round(sum(replies) / makespan, 6)}
    return found


def _summary(values_s: Sequence[float]) -> dict[str, float]:
    distribution = Distribution.of([1e3 * value for value in values_s])
    percentiles = {f"p{q}": round(distribution.percentile(q), 6) for q in (50, 90, 99)}
    return {"mean": round(distribution.mean(), 6), **percentiles}


def _peers(path: Path) -> dict[str, Measured]:
    """LLMServingSim's own prediction of the run, from the column Sim of its summary."""
    if not path.is_file():
        return {}
    predicted: Measured = {}
    for line in read_text(path).splitlines():
        found = _PEER_ROW.match(line)
        if found and found[1] in _PEER_METRICS and found[2] in _PEER_STATISTICS:
            statistics = predicted.setdefault(_PEER_METRICS[found[1]], {})
            statistics[_PEER_STATISTICS[found[2]]] = float(found[3])
    if not predicted:
        raise TraceError(str(path), None, "has no row such as `TTFT Mean  7097.2  6815.7  -4.0%`")
    return {"LLMServingSim": predicted}


def _gpu(run: Path) -> str:
    """As the run's own description says, else as its place does (examples/GPU/MODEL/vllm)."""
    config = run.parents[1] / "config.json"
    if config.is_file():
        return logs.gpu_of(_object(config, ("nodes",)), config)
    return run.resolve().parents[2].name


def _object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise TraceError(str(path), None, "must be an object")
    for key in keys:
        if key not in content:
            raise TraceError(str(path), None, f"lacks '{key}'")
    return content
