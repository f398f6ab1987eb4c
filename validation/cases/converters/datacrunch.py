"""DataCrunch's SGLang runs on H200: Poisson arrivals, lengths uniform up to the nominal one.

The rows are summaries of `sglang.bench_serving`: with `random_range_ratio` r lengths are whole
numbers from max(r × nominal, 1) to nominal, and gaps exponential. Model and ranks are in the
file's name alone; the server's command (`sglang/experiments/*.sh`) turns the radix cache off.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path

from servesim.errors import TraceError
from validation.cases.case import Case, Engine, Limits, Source
from validation.cases.converted import Converted, Place, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_jsonl
from validation.cases.workloads import Fixed, Length, OpenLoop, Uniform

PATTERNS = ("datacrunch-h200/*.jsonl",)
COLUMNS = (
    *("backend", "dataset_name", "request_rate", "completed", "duration", "output_throughput"),
    *("random_input_len", "random_output_len", "random_range_ratio"),
    *("total_input_tokens", "total_output_tokens"),
    *("mean_e2e_latency_ms", "median_e2e_latency_ms", "median_ttft_ms", "median_itl_ms"),
)
SERVED = {  # beginning of the file's name → model, ranks
    "llama_3_3_70b": ("meta-llama/Llama-3.3-70B-Instruct", 4),
    "llama_405b": ("meta-llama/Meta-Llama-3.1-405B", 8),
}
GPU = "H200"
COLUMNS_OF = {
    "ttft_ms": {"mean": "mean_ttft_ms", "p50": "median_ttft_ms", "p99": "p99_ttft_ms"},
    "tpot_ms": {"mean": "mean_tpot_ms", "p50": "median_tpot_ms", "p99": "p99_tpot_ms"},
    "itl_ms": {"mean": "mean_itl_ms", "p50": "median_itl_ms", "p99": "p99_itl_ms"},
    "e2e_ms": {"mean": "mean_e2e_latency_ms", "p50": "median_e2e_latency_ms"},
    "makespan_s": {"value": "duration"},
    "output_tokens_per_s": {"value": "output_throughput"},
}


def convert(path: Path) -> Iterator[Converted]:
    """One case per line."""
    served = [of for beginning, of in SERVED.items() if path.name.startswith(beginning)]
    if not served:
        known = " or ".join(SERVED)
        raise TraceError(str(path), None, f"must begin with {known}: its name says the model")
    model, tp = served[0]
    for row in read_jsonl(path, COLUMNS):
        yield Converted(_case(row, path.name, model, tp))


def _case(row: Row, file: str, model: str, tp: int) -> Case:
    engine = row.text("backend")
    found = place(engine, model, GPU, tp)
    random = row.text("dataset_name") == "random"
    rate = _rate(row)
    prompt, output = (_length(row, way, random) for way in ("input", "output"))
    return Case(
        name=slug(
            *("datacrunch", found.hardware, engine, found.model, f"tp{tp}"),
            *(row.text("dataset_name"), _size(row) if random else "", f"rate{rate:g}"),
        ),
        source=Source(
            name="datacrunch",
            repository="github.com/datacrunch-research/h200-benchmarks",
            commit="c091ef530a525d2e788bc41c39a4450b09c9f2ad",
            licence="MIT",
            file=file,
            row=f"line {row.line}",
        ),
        engine=Engine(engine),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        limits=Limits(enable_prefix_caching=False),
        workload=OpenLoop(rate, "poisson", row.whole("completed"), prompt, output),
        measured=measured(row, COLUMNS_OF),
        counted_from="sent",
        not_covered=_why_not(found, random, row),
        notes=("the engine's release and limits are not recorded",),
    )


def _rate(row: Row) -> float:
    """Requests per second; inf is written as such, which JSON has no number for."""
    value = row.values["request_rate"]
    if isinstance(value, float | str) and str(value).lower() in ("inf", "infinity"):
        return inf
    return row.positive("request_rate")


def _length(row: Row, way: str, random: bool) -> Length:
    if not random:
        return Fixed(max(round(row.positive(f"total_{way}_tokens") / row.whole("completed")), 1))
    nominal = row.whole(f"random_{way}_len")
    share = row.number("random_range_ratio")
    return Uniform(min(max(int(share * nominal), 1), nominal), nominal)


def _size(row: Row) -> str:
    return f"{row.whole('random_input_len')}x{row.whole('random_output_len')}"


def _why_not(found: Place, random: bool, row: Row) -> str | None:
    if found.not_covered or random:
        return found.not_covered
    return f"the lengths drawn from {row.text('dataset_name')} are not recorded"
