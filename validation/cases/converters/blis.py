"""BLIS's measured vLLM runs at constant rates with shared system prompts (two tables).

One case is one experiment, all its stages in sequence, as it was run: the prefix cache lives
through it. Statistics of the whole run are those of stage −1 where the table has it, else the
means of the stages weighted by their requests; `measured_by_stage` has each stage.

`blis_training_inference_perf_stages.csv` records durations, prompts as tokenised and limits. The
other table does not: there stages take 600 s where there are two and 1,200 s where there is one,
max_num_seqs is 128, and prompts of models with Llama's first tokeniser are 4.8 % longer than
nominal, all as in the recorded runs. TPOT is (E2E − TTFT) / (reply − 1): the source's gaps count
server-sent events, about two per token.

The load generator (inference-perf, shared prefixes) makes one question per user of each system
prompt and sends these few prompts in turn, again and again: 36 to 50 of them, or 23. So whole
prompts are in the prefix cache after the first round. Taken as distinct questions, CodeLlama-34B
would be 25-52 % too slow in TTFT and up to 39 % in TPOT, with kernel tables that are within 4 % of
its TPOT otherwise; from 5 to 10 requests/s, measured TPOT grows by 5 %, which leaves no time for
prefills of 500 tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from validation.cases.case import Case, Engine, Limits, Measured, Source
from validation.cases.converted import Converted, dtype_of, measured, place
from validation.cases.published import slug
from validation.cases.rows import Row, read_csv, require
from validation.cases.workloads import Fixed, OpenLoop, Prefix, Stage

PATTERNS = (
    "blis/blis_training_inference_perf_stages.csv",
    "blis/blis_measured_vllm_h100_a100_l40s.csv",
)
COMMON = (
    *("experiment", "model", "tp", "max_num_batched_tokens", "stage", "question_len"),
    *("system_prompt_len", "ttft_mean_ms", "ttft_p90_ms", "ttft_p99_ms"),
    *("e2e_mean_ms", "e2e_p90_ms", "e2e_p99_ms"),
)
RECORDED = (
    *("max_num_seqs", "rate", "duration_s", "n_req", "n_fail", "n_sys"),
    *("prompt_len_mean", "output_len_requested"),
)
INFERRED = (
    *("hardware", "cpu_kv_offload", "gpu_mem_util", "precision", "rate_rps_inferred"),
    *("output_len", "n_system_prompts"),
)
VERSION = "0.15.1"  # as the source's paper says
MAX_NUM_SEQS = 128
DURATION_S = {1: 1200.0}  # by number of stages
DURATION_OF_MANY_S = 600.0
RETOKENISED = 1.048
FIRST_TOKENISER = ("llama2", "codellama", "mixtral", "mistral_7b")
WHOLE_RUN = -1  # number of the stage that stands for all
MEASURED_BY = {  # whether limits and durations are recorded → repository, commit
    True: (
        "github.com/inference-sim/training",
        "ed5c1d26900e6909758d5e1641a18edaf56a1caf",
    ),
    False: (
        "github.com/inference-sim/sim-to-real-accuracy-validation",
        "7f3b27022dcd575958a2f0c7b2373afece64c655",
    ),
}
NOISE = 0.02  # repeats of the source differ by 1 to 3 %
MOST_FAILED = 0.01


def convert(path: Path) -> Iterator[Converted]:
    """One case per experiment, in the order of the file."""
    rows = read_csv(path, COMMON)
    recorded = bool(rows) and "duration_s" in rows[0].values
    if rows:
        require(path, list(rows[0].values), RECORDED if recorded else INFERRED)
    experiments: dict[str, list[Row]] = {}
    for row in rows:
        experiments.setdefault(row.text("experiment"), []).append(row)
    elsewhere = frozenset() if recorded else _runs(path.with_name(Path(PATTERNS[0]).name))
    for name, of_it in experiments.items():
        case = _case(name, of_it, recorded, path)
        if any(_fingerprint(row) in elsewhere for row in of_it):
            case = replace(case, not_covered=f"the same run with its limits is in {PATTERNS[0]}")
        yield Converted(case)


def _runs(path: Path) -> frozenset[tuple[float, float]]:
    return frozenset(map(_fingerprint, read_csv(path, COMMON))) if path.is_file() else frozenset()


def _fingerprint(row: Row) -> tuple[float, float]:
    return row.number("ttft_mean_ms"), row.number("e2e_mean_ms")


def _case(experiment: str, rows: list[Row], recorded: bool, path: Path) -> Case:
    first = rows[0]
    by_number = {row.integer("stage"): row for row in rows}
    whole = by_number.pop(WHOLE_RUN, None)
    if not by_number:
        raise first.error("experiment", "has no row of a stage, and so no rate")
    staged = [by_number[number] for number in sorted(by_number)]
    gpu = "H100" if recorded else first.text("hardware")
    found = place("vllm", first.text("model"), gpu, first.whole("tp"))
    workload = _workload(staged, found.model, recorded)
    by_stage = tuple(_measured(row, workload) for row in staged)
    return Case(
        name=slug("blis", "stages" if recorded else "results", experiment),
        source=_source(recorded, path, experiment),
        engine=Engine("vllm", VERSION),
        model=found.model,
        hardware=found.hardware,
        tp=first.whole("tp"),
        dp=first.whole_or_none("dp") or 1,
        dtype=dtype_of(first.text("model"), first.text_or_none("precision")),
        limits=Limits(
            max_num_seqs=first.whole("max_num_seqs") if recorded else MAX_NUM_SEQS,
            max_num_batched_tokens=first.whole("max_num_batched_tokens"),
            gpu_memory_utilization=first.number_or_none("gpu_mem_util"),
        ),
        workload=workload,
        measured=_measured(whole, workload) if whole else _over_stages(by_stage, workload),
        measured_by_stage=by_stage,
        counted_from="sent",
        noise=NOISE,
        not_covered=found.not_covered or _failed(staged, recorded),
        notes=tuple(_notes(first, len(staged), recorded)),
    )


def _source(recorded: bool, path: Path, experiment: str) -> Source:
    repository, commit = MEASURED_BY[recorded]
    return Source("blis", repository, commit, None, path.name, experiment)


def _workload(staged: Sequence[Row], model: str, recorded: bool) -> OpenLoop:
    first = staged[0]
    stages = tuple(_stage(row, len(staged), recorded) for row in staged)
    total = sum(stage.num_requests for stage in stages)
    nominal = first.whole("question_len") + first.whole("system_prompt_len", at_least=0)
    if recorded:
        prompt = round(first.positive("prompt_len_mean"))
    else:
        prompt = round(nominal * (RETOKENISED if model.startswith(FIRST_TOKENISER) else 1))
    return OpenLoop(
        rate_rps=total / sum(stage.duration_s for stage in stages),
        arrival="constant",
        num_requests=total,
        prompt=Fixed(prompt),
        output=Fixed(first.whole("output_len_requested" if recorded else "output_len")),
        prefix=Prefix(prompt, _prompts(first, recorded)),
        stages=stages,
    )


def _prompts(row: Row, recorded: bool) -> int:
    """How many different prompts there are."""
    names = ("n_sys", "users") if recorded else ("n_system_prompts", "users_per_prompt")
    systems, users = (row.whole(name) for name in names)
    return systems * users


def _stage(row: Row, of: int, recorded: bool) -> Stage:
    if recorded:
        return Stage(row.positive("rate"), row.positive("duration_s"))
    return Stage(row.positive("rate_rps_inferred"), DURATION_S.get(of, DURATION_OF_MANY_S))


def _measured(row: Row, workload: OpenLoop) -> Measured:
    found = measured(
        row,
        {
            metric: {s: f"{column}_{_column(s)}_ms" for s in ("mean", "p50", "p90", "p95", "p99")}
            for metric, column in (("ttft_ms", "ttft"), ("e2e_ms", "e2e"))
        },
    )
    return found | _tpot(found, workload)


def _column(statistic: str) -> str:
    return "median" if statistic == "p50" else statistic


def _tpot(found: Measured, workload: OpenLoop) -> Measured:
    """Its mean, which is that of E2E less TTFT as all replies are of one length."""
    gaps = workload.output.tokens - 1 if isinstance(workload.output, Fixed) else 0
    if gaps < 1:
        return {}
    decoding_ms = found["e2e_ms"]["mean"] - found["ttft_ms"]["mean"]
    return {"tpot_ms": {"mean": round(decoding_ms / gaps, 6)}}


def _over_stages(by_stage: Sequence[Measured], workload: OpenLoop) -> Measured:
    """Of the whole run from its stages: all of one, the means of several."""
    if len(by_stage) == 1:
        return by_stage[0]
    weights = [stage.num_requests for stage in workload.stages or ()]
    return {
        metric: {
            "mean": round(
                sum(w * stage[metric]["mean"] for w, stage in zip(weights, by_stage, strict=True))
                / sum(weights),
                6,
            )
        }
        for metric in by_stage[0]
    }


def _failed(staged: Sequence[Row], recorded: bool) -> str | None:
    """Where requests failed, the statistics are those of the survivors."""
    if not recorded:
        return None
    served = sum(row.whole("n_req", at_least=0) for row in staged)
    failed = sum(row.whole("n_fail", at_least=0) for row in staged)
    if failed <= MOST_FAILED * (served + failed):
        return None
    return "more than 1 % of the requests failed in the measured run"


def _notes(first: Row, num_stages: int, recorded: bool) -> Iterator[str]:
    if not recorded:
        yield "durations and max_num_seqs as in the source's runs that record them"
        if num_stages == 1:
            yield "the rate is inferred from the profile's name and could not be verified"
        if first.flag("cpu_kv_offload"):
            yield "KV blocks were offloaded to the CPU, which is not simulated"
