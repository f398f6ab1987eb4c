"""LLM-Inference-Bench of Argonne: static batches, replies as long as their prompts.

Latency is that of the whole batch, prefill included: throughput × latency is prompts and replies.
Engine releases and limits are not recorded; the source's paper is of October 2024 (arXiv
2411.00136), when every release of vLLM was of the V0 engine, 0.6.3 the newest. GPU names leave the
memory open; by the paper the A100 is the 40 GB one, and so say the rows: Llama-2-7B's batch of 64 ×
2,048 tokens waits for memory there. No row beats its GPU: of the covered ones, the one nearest to
reading its weights and KV at the data sheet's rate takes 1.4 times as long. A row that takes nearly
as long as one with twice the tokens has something else in it, such as the start, and is doubtful.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from validation.cases.case import Case, Engine, Source
from validation.cases.converted import Converted, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_csv
from validation.cases.workloads import Fixed, StaticBatch

PATTERNS = ("argonne-llm-inference-bench/All_results.csv",)
TOKENS, LATENCY = "Input Output Length", "Latency"
COLUMNS = (
    *("Hardware", "Num of Hardware", "Framework", "Model", TOKENS),
    *("Batch Size", LATENCY, "Throughput"),
)
ENGINES = {"tensorrt-llm": "trtllm"}
NEWEST = {"vllm": "0.6.3"}  # when it was measured
GPUS = {"Nvidia A100 GPU": "A100-40GB"}
# 87 GiB of Mixtral on one MI250 were served by both of its dies; a 7B model may have been by one
UNCLEAR = {"AMD MI250 GPU": "an MI250 is two GPUs, and how many served is not recorded"}


NEARLY = 0.8  # of the time of twice the tokens, which takes twice as many steps

Latencies = Mapping[tuple[str, ...], Sequence[tuple[int, float]]]


def convert(path: Path) -> Iterator[Converted]:
    """One case per row."""
    rows = list(read_csv(path, COLUMNS))
    latencies = defaultdict(list)
    for row in rows:
        latencies[_batch(row)].append((row.whole(TOKENS), row.positive(LATENCY)))
    for row in rows:
        yield Converted(_case(row, path.name, latencies))


def _batch(row: Row) -> tuple[str, ...]:
    """What rows have in common that differ in length alone."""
    columns = ("Hardware", "Num of Hardware", "Framework", "Model", "Batch Size")
    return tuple(row.text(column) for column in columns)


def _case(row: Row, file: str, latencies: Latencies) -> Case:
    framework, published = row.text("Framework").lower(), row.text("Model")
    engine, gpu = ENGINES.get(framework, framework), row.text("Hardware")
    tp, batch, tokens = (row.whole(c) for c in ("Num of Hardware", "Batch Size", TOKENS))
    found = place(engine, published, GPUS.get(gpu, gpu), tp)
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
            row, {"makespan_s": {"value": LATENCY}, "total_tokens_per_s": {"value": "Throughput"}}
        ),
        counted_from="queued",
        not_covered=found.not_covered or UNCLEAR.get(gpu),
        notes=tuple(_notes(row, engine, latencies)),
    )


def _notes(row: Row, engine: str, latencies: Latencies) -> Iterator[str]:
    newest = NEWEST.get(engine)
    known = f": {newest} taken, the newest when it was measured" if newest else ""
    yield f"the engine's release and limits are not recorded{known}"
    tokens, latency_s = row.whole(TOKENS), row.number(LATENCY)
    for others, longer_s in latencies[_batch(row)]:
        if others >= 2 * tokens and latency_s > NEARLY * longer_s:
            yield f"doubtful: {tokens} tokens took {latency_s:.3g} s, {others} {longer_s:.3g} s"
            return
