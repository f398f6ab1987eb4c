"""LLM-Inference-Bench of Argonne: static batches, replies as long as their prompts.

Latency is that of the whole batch, prefill included: throughput × latency is prompts and replies.
Engine releases and limits are not recorded; the source's paper is of October 2024 (arXiv
2411.00136), when every release of vLLM was of the V0 engine, 0.6.3 the newest. GPU names leave the
memory open; by the paper the A100 is the 40 GB one, and so say the rows: Llama-2-7B's batch of 64 ×
2,048 tokens waits for memory there.
"""

from collections.abc import Iterator
from pathlib import Path

from validation.cases.case import Case, Engine, Source
from validation.cases.converted import Converted, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_csv
from validation.cases.workloads import Fixed, StaticBatch

PATTERNS = ("argonne-llm-inference-bench/All_results.csv",)
COLUMNS = (
    *("Hardware", "Num of Hardware", "Framework", "Model", "Input Output Length"),
    *("Batch Size", "Latency", "Throughput"),
)
ENGINES = {"tensorrt-llm": "trtllm"}
NEWEST = {"vllm": "0.6.3"}  # when it was measured
GPUS = {"Nvidia A100 GPU": "A100-40GB"}
# 87 GiB of Mixtral on one MI250 were served by both of its dies; a 7B model may have been by one
UNCLEAR = {"AMD MI250 GPU": "an MI250 is two GPUs, and how many served is not recorded"}


def convert(path: Path) -> Iterator[Converted]:
    """One case per row."""
    for row in read_csv(path, COLUMNS):
        yield Converted(_case(row, path.name))


def _case(row: Row, file: str) -> Case:
    framework, published = row.text("Framework").lower(), row.text("Model")
    engine, gpu = ENGINES.get(framework, framework), row.text("Hardware")
    tp, batch, tokens = (
        row.whole(c) for c in ("Num of Hardware", "Batch Size", "Input Output Length")
    )
    found = place(engine, published, GPUS.get(gpu, gpu), tp)
    row.positive("Latency")
    return Case(
        name=slug(
            *("argonne", found.hardware, engine, found.model, f"tp{tp}", f"{tokens}x{tokens}"),
            f"b{batch}",
        ),
        source=Source(
            name="argonne",
            repository="github.com/argonne-lcf/LLM-Inference-Bench",
            commit="4211f5d4e9bc0145ed541b6d372d5d8223b44235",
            licence="BSD-3-Clause",
            file=file,
            row=f"line {row.line}",
        ),
        engine=Engine(engine, NEWEST.get(engine)),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        workload=StaticBatch(batch, Fixed(tokens), Fixed(tokens)),
        measured=measured(
            row, {"makespan_s": {"value": "Latency"}, "total_tokens_per_s": {"value": "Throughput"}}
        ),
        counted_from="queued",
        not_covered=found.not_covered or UNCLEAR.get(gpu),
        notes=tuple(_notes(engine)),
    )


def _notes(engine: str) -> Iterator[str]:
    newest = NEWEST.get(engine)
    known = f": {newest} taken, the newest when it was measured" if newest else ""
    yield f"the engine's release and limits are not recorded{known}"
