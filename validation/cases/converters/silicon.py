"""AIConfigurator's measured points: closed loops over length, concurrency, GPU and tp.

Not recorded, and taken as follows: 10 requests per user (InferenceMAX's rule; for the other origin
it is a guess); lengths 0.8 to 1.0 × nominal where the origin is InferenceMAX
(`--random-range-ratio 0.8`), else as nominal; engine limits as the release's defaults, but for two
where the origin is not InferenceMAX: `max_num_batched_tokens` of vLLM and `enable_mixed_chunk` of
SGLang. TTFT and TPOT are means or medians: the source does not say which.

vLLM's users whose prompts share a step stay in step, since all lengths are equal, so TTFT tells how
many prompts a step takes: with 8 users it is 2.1 to 3.0 prompts' worth beyond the first wave, for
prompts of 1,024 and of 4,096, which is none of the usual constants (2,048 tokens miss it by −39 %
at 4,096, 8,192 by +213 % at 1,024). Three prompts and one token per user are taken: one number,
found on rows of Qwen3-32B on H100 among multiples 1, 2, 3 and constants 2,048 to 16,384. For the
same reason those rows are simulated without a front end (`counted_from: queued`): with equal
lengths, any delay between one reply and the next prompt makes users fall into step, which the
measured TTFT (8.9 prompts' worth with 128 users, 64 if they were) shows they did not.

SGLang's rows are of two campaigns. Where lengths are powers of two, so are the users, and TTFT is
half of all users' prefills, at 16 users as at 128: prefill batches go first and alone, by default,
so users of equal replies end, send and wait together. Where lengths are round thousands, users are
planned (20, 112, 352), times are rounded to 10 µs, and TTFT is a half to a fifth of that. It is
what the first wave adds to the mean of ten waves, and five prompts' worth: users are apart. Decodes
that ride in prefill batches put them apart, so `enable_mixed_chunk` is taken there; the source does
not say it. Lengths of 0.8 to 1.0 do so as well, but then fit with five waves only, and with a TPOT
a fifth too long. Either campaign is counted from the client's sending: through a front end, users
who end within its delay meet again. So taken, TTFT of the 9 rows with up to 128 users on H200 is
off by 12 % at the median (2026-11-30). Not explained: 1,000 × 100 with 160 users and tp 1, which is
in step (1,612 ms), and rows with 240 users and more, whose TTFT is 1.3 to 14 times the simulated
one, the more so the faster the GPUs are: up to 20,000 tokens per second leave through the front
end, at any tp (see `FrontEnd`: one that saturates is not modelled).

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
PROMPTS_PER_STEP = 3
ROUND_LENGTH = 1000  # tokens: prompts of SGLang's planned campaign are multiples
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
    for run, case in cases:
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
        kv_dtype="fp8" if _by_nvidia(row, published) and dtype != "bf16" else "bf16",
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
    """What is not recorded and decides TTFT: vLLM's budget of tokens, SGLang's kind of batches."""
    if row.text("origin") == INFERENCEMAX:
        return Limits()
    if engine == "vllm":
        return Limits(max_num_batched_tokens=PROMPTS_PER_STEP * isl + users)
    if engine == "sglang" and isl % ROUND_LENGTH == 0:
        return Limits(enable_mixed_chunk=True)
    return Limits()


def _counted_from(row: Row, engine: str) -> str:
    through = row.text("origin") == INFERENCEMAX or engine == "sglang"
    return "sent" if through else "queued"


def _newest(engine: str, date: str | None) -> str | None:
    """The newest release of an engine on a day, where it is known here."""
    before = [release for day, release in RELEASED.get(engine, ()) if date and day <= date]
    return before[-1] if before else None


def _dtype(row: Row, published: str) -> str:
    """The precision, else the format of the matrix products, else what the name says."""
    mode = row.text_or_none("precision") or row.text_or_none("gemm_quant_mode")
    return dtype_of(published, mode.removesuffix("_block") if mode else None)


def _by_nvidia(row: Row, published: str) -> bool:
    """Whether the weights are a checkpoint that NVIDIA quantised; InferenceMAX serves those."""
    return published.startswith("nvidia/") or row.text("origin") == INFERENCEMAX


def _length(row: Row, nominal: int) -> Length:
    if row.text("origin") == INFERENCEMAX:
        return Uniform(max(int(LEAST_SHARE * nominal), 1), nominal)
    return Fixed(nominal)


def _notes(row: Row, found: Place, dtype: str, users: int, version: str | None) -> Iterator[str]:
    if row.text("origin") != INFERENCEMAX:
        yield "the number of requests is not recorded: 10 per user taken"
        if row.text("backend") == "vllm":
            yield "max_num_batched_tokens is not recorded: 3 prompts and a token per user taken"
        if row.text("backend") == "sglang" and row.whole("isl") % ROUND_LENGTH == 0:
            yield "enable_mixed_chunk is not recorded: taken, as users do not wait for each other"
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
