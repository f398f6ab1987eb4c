"""AIConfigurator's measured points: closed loops over length, concurrency, GPU and tp.

Not recorded, and taken as follows: 10 requests per user (InferenceMAX's rule; for the other origin
it is a guess); lengths 0.8 to 1.0 × nominal where the origin is InferenceMAX
(`--random-range-ratio 0.8`), else as nominal. TTFT and TPOT are means or medians: the source does
not say which. Engine limits: `parts/silicon_limits.py`, `parts/silicon_trtllm.py`.

A row without a precision is 16-bit: Qwen3-32B on one H100 (TPOT 25.5 ms with 16 users) cannot
read 61 GiB of bf16 weights faster than 19.6 ms, and its TTFT, 88 s at 2,048 × 512, is the queue of
the few GiB of cache that 16-bit weights leave. Checkpoints that NVIDIA quantised ask for an fp8 KV
cache (`kv_cache_quant_algo` of their hf_quant_config.json). The rows agree: Llama-3.1-70B fp8 on
one H200, 8,192 × 1,024 with 64 users, had 46 requests running (64 × decode time ÷ E2E), which is
what an fp8 cache holds; a bf16 one holds half.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from validation.cases.case import Case, Engine, Limits, Source
from validation.cases.converted import Converted, Place, dtype_of, place
from validation.cases.converters.parts import silicon_limits, silicon_trtllm
from validation.cases.published import load_gpu, load_model, slug
from validation.cases.rows import Row, read_csv
from validation.cases.workloads import ClosedLoop, Fixed, Length, Uniform

PATTERNS = ("aiconfigurator/silicon_dense_agg_subset.csv",)
COLUMNS = (
    *("id", "origin", "measured", "backend", "backend_version", "model_path", "system"),
    "precision",
    *("gemm_quant_mode", "isl", "osl", "batch_size", "concurrency", "tp_size", "pp_size"),
    *("silicon_ttft_ms", "silicon_tpot_ms"),
)
REPOSITORY = "github.com/ai-dynamo/aiconfigurator"
COMMIT = "095f58a51c4ca8e61b66ec108d86f223f8d559ce"
REQUESTS_PER_USER = 10
INFERENCEMAX = "inferencemax-db"
# day (PyPI) → release, for rows that record when they were measured and not what with
RELEASED = {
    "vllm": (
        ("2025-07-24", "0.10"),
        ("2025-10-02", "0.11"),
        ("2025-12-03", "0.12"),
    )
}
LEAST_SHARE = 0.8  # of a nominal length, InferenceMAX
DOUBTFUL_SHARE = 0.6  # of the peak FLOPS, by the linear layers alone
IMPLIES = "implies more of the GPU's peak FLOPS than kernels reach"


def convert(path: Path) -> Iterator[Converted]:
    """One case per row; rows of a run of which one cannot be are all doubtful."""
    cases = [(_run(row), _case(row, path)) for row in read_csv(path, COLUMNS)]
    impossible = {run for run, case in cases if any(IMPLIES in note for note in case.notes)}
    sound = silicon_trtllm.with_doubts([case for _, case in cases])
    for (run, _), case in zip(cases, sound, strict=True):
        if run in impossible and not any(IMPLIES in note for note in case.notes):
            case = replace(
                case, notes=(*case.notes, f"doubtful: another row of this run {IMPLIES}")
            )
        yield Converted(case)


def _run(row: Row) -> tuple[str | None, ...]:
    """What rows of one measuring campaign have in common."""
    columns = ("origin", "backend", "backend_version", "model_path", "system")
    return tuple(row.text_or_none(column) for column in columns)


def _case(row: Row, path: Path) -> Case:
    engine, published = row.text("backend"), row.text("model_path")
    version = row.text_or_none("backend_version") or _newest(engine, row.text_or_none("measured"))
    tp, users = row.whole("tp_size"), row.whole("concurrency")
    found = place(engine, published, row.text("system"), tp)
    dtype = _dtype(row, published)
    isl, osl = row.whole("isl"), row.whole("osl")
    name = slug(
        *("silicon", found.hardware, engine, version or "unknown", found.model, f"tp{tp}", dtype),
        *(f"{isl}x{osl}", f"c{users}"),
    )
    return Case(
        name=name,
        source=Source("silicon", REPOSITORY, COMMIT, "Apache-2.0", path.name, row.text("id")),
        engine=Engine(engine, version),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        pp=row.whole_or_none("pp_size") or 1,
        dtype=dtype,
        kv_dtype=_kv_dtype(row, published, dtype),
        workload=ClosedLoop(
            concurrency=users,
            num_requests=REQUESTS_PER_USER * users,
            prompt=_length(row, isl),
            output=_length(row, osl),
        ),
        measured={
            "ttft_ms": {"unspecified": row.positive("silicon_ttft_ms")},
            "tpot_ms": {"unspecified": row.positive("silicon_tpot_ms")},
        },
        counted_from=_counted_from(row, engine),
        limits=_limits(row, engine, isl, users),
        not_covered=found.not_covered,
        notes=tuple(_notes(row, found, dtype, users, version)),
    )


def _limits(row: Row, engine: str, isl: int, users: int) -> Limits:
    if engine == "trtllm":
        return silicon_trtllm.limits(isl, users)
    return silicon_limits.limits(engine, _inferencemax(row), isl, users)


def _counted_from(row: Row, engine: str) -> str:
    """TensorRT-LLM's other rows tell of no front end."""
    return "queued" if engine == "trtllm" and not _inferencemax(row) else "sent"


def _inferencemax(row: Row) -> bool:
    return row.text("origin") == INFERENCEMAX


def _newest(engine: str, date: str | None) -> str | None:
    """The newest release of an engine on a day, where it is known here."""
    before = [release for day, release in RELEASED.get(engine, ()) if date and day <= date]
    return before[-1] if before else None


def _dtype(row: Row, published: str) -> str:
    """The precision, else the format of the matrix products, else what the name says."""
    mode = row.text_or_none("precision") or row.text_or_none("gemm_quant_mode")
    return dtype_of(published, mode.removesuffix("_block") if mode else None)


def _kv_dtype(row: Row, published: str, dtype: str) -> str:
    """Of the KV cache: fp8 with NVIDIA's quantised checkpoints, and with its engine."""
    narrow = _by_nvidia(row, published) or row.text("backend") == "trtllm"
    return "fp8" if narrow and dtype != "bf16" else "bf16"


def _by_nvidia(row: Row, published: str) -> bool:
    """Whether the weights are a checkpoint that NVIDIA quantised; InferenceMAX serves those."""
    return published.startswith("nvidia/") or _inferencemax(row)


def _length(row: Row, nominal: int) -> Length:
    if _inferencemax(row):
        return Uniform(max(int(LEAST_SHARE * nominal), 1), nominal)
    return Fixed(nominal)


def _notes(row: Row, found: Place, dtype: str, users: int, version: str | None) -> Iterator[str]:
    engine, isl = row.text("backend"), row.whole("isl")
    yield from silicon_limits.notes(engine, _inferencemax(row), isl)
    if engine == "trtllm":
        lengths = isl, row.whole("osl")
        yield from silicon_trtllm.notes(_inferencemax(row), *lengths, row.whole("tp_size"))
    if row.text_or_none("backend_version") is None:
        known = f": {version} taken, the newest when it was measured" if version else ""
        yield f"the engine's release is not recorded{known}"
    batch = row.whole_or_none("batch_size")
    if batch not in (None, users):
        yield f"doubtful: batch_size {batch} beside concurrency {users}"
    share = _share_of_peak(row, found, dtype, users) if found.not_covered is None else None
    if share is not None and share > DOUBTFUL_SHARE:
        yield f"doubtful: {IMPLIES}: {share:.0%} in the linear layers alone"


def _share_of_peak(row: Row, found: Place, dtype: str, users: int) -> float | None:
    gpu = load_gpu(found.hardware)
    peaks = {"nvfp4": "fp4"}
    peak = gpu.dense_tflops.get(peaks.get(dtype, dtype))
    if peak is None:
        return None
    isl, osl = row.whole("isl"), row.whole("osl")
    e2e_s = (row.number("silicon_ttft_ms") + row.number("silicon_tpot_ms") * (osl - 1)) / 1e3
    flops_per_s = 2 * load_model(found.model).active_parameters * (isl + osl) * users / e2e_s
    return flops_per_s / (row.whole("tp_size") * peak * 1e12)
