"""powertrace-sim's vLLM 0.10.1.1 runs: Poisson and smooth arrivals, and replayed agent sessions.

`measured_summary.json` has the settings and the statistics of every run; the requests are in the
CSV files beside it, for one model:

* arrivals are recorded for Poisson runs (burstiness 1) whose GPU and rate have a column;
* other arrivals are drawn again from the gamma law that the run was sent with;
* a run of other requests than the recorded ones has log-normal lengths of its own mean and of the
  recorded requests' coefficient of variation (both are ShareGPT);
* a run with sessions replays the turns of the other CSV.
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from servesim.errors import TraceError
from validation.cases.case import Case, Engine, Limits, Measured, Source
from validation.cases.converted import Converted, drawn_arrivals, place, requests_csv, table
from validation.cases.published import load_model, slug
from validation.cases.rows import Row, read_csv, read_json
from validation.cases.workloads import LogNormal, OpenLoop, Requests, Sessions

PATTERNS = ("powertrace-sim/measured_summary.json",)
REQUESTS = "qwen3-8b_sharegpt200_seed20260712.csv"
TURNS = "qwen3-8b_a100_agentic_prefixcache_on_off.csv"
TURN_COLUMNS = (
    *("session", "turn", "input_tokens", "output_tokens", "shared_prefix_tokens"),
    *("post_gap_s", "off_submit_s"),
)
SESSION_COLUMNS = (
    *("session", "turn", "start_s", "gap_s", "prompt_tokens", "output_tokens"),
    "shared_prefix_tokens",
)
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
COMMITS = {  # by model, as its runs were added
    "Qwen/Qwen3-8B": "96361efbde8bb01c3c44a8d705853574cc915e1a",
    "Qwen/Qwen3-14B": "1eda1506bdce807b0cebd1e105824d12a9694156",
    "Qwen/Qwen3-30B-A3B": "9edacc4f63f05953e94420c01fec810174fa1f17",
}

LENGTHS_DRAWN = "the lengths are not recorded: log-normal with the means of the run"
ARRIVALS_DRAWN = "the arrivals are not recorded: drawn again from the run's gamma law"


def convert(path: Path) -> Iterator[Converted]:
    """One case per run of the summary."""
    content = read_json(path)
    if not isinstance(content, list) or not all(isinstance(run, dict) for run in content):
        raise TraceError(str(path), None, "must be a list of runs")
    for number, values in enumerate(content, start=1):
        yield _run(Row(f"{path}, run", number, values), path.parent)


def _run(run: Row, folder: Path) -> Converted:
    name = slug("powertrace", run.text("run"))
    if run.given("sessions"):
        file = f"{name}.csv"
        return Converted(
            _case(run, name, Sessions(file), ("a first turn shares nothing: its prefix is cold",)),
            {file: _turns(folder / TURNS)},
        )
    recorded = read_csv(folder / REQUESTS, ("input_tokens", "output_tokens"))
    lengths = [(row.whole("input_tokens"), row.whole("output_tokens")) for row in recorded]
    if not lengths:
        raise TraceError(str(folder / REQUESTS), None, "has no requests")
    if run.given("total_input_tokens") or run.whole("n") != len(lengths):
        return Converted(_case(run, name, _like(run, lengths), (LENGTHS_DRAWN,)))
    arrivals = _recorded_arrivals(run, recorded)
    notes = () if arrivals else (ARRIVALS_DRAWN,)
    if arrivals is None:
        rate, burstiness = run.positive("rate"), run.positive("burstiness")
        arrivals = drawn_arrivals(name, len(lengths), rate, burstiness)
    rows = [(at, *length) for at, length in zip(arrivals, lengths, strict=True)]
    file = f"{name}.csv"
    return Converted(_case(run, name, Requests(file), notes), {file: requests_csv(rows)})


def _case(
    run: Row, name: str, workload: Requests | Sessions | OpenLoop, notes: tuple[str, ...]
) -> Case:
    model, tp = run.text("model"), run.whole("tp")
    found = place("vllm", model, run.text("gpu"), tp)
    longest = run.whole_or_none("max_model_len")
    if longest and not found.not_covered:
        own = load_model(found.model).max_position_embeddings
        if longest > own:
            notes = (*notes, f"max_model_len was {longest}, with scaled positions; {own} taken")
            longest = own
    return Case(
        name=name,
        source=Source(
            name="powertrace",
            repository="github.com/grantwilkins/powertrace-sim",
            commit=COMMITS.get(model, ", ".join(COMMITS.values())),
            licence=None,
            file="data/runs",
            row=run.text("run"),
        ),
        engine=Engine("vllm", _in_engine(run, r"vLLM ([\d.]+)")),
        model=found.model,
        hardware=found.hardware,
        tp=tp,
        limits=Limits(
            max_num_seqs=_whole(run, r"max_num_seqs (\d+)"),
            max_num_batched_tokens=_whole(run, r"max_num_batched_tokens (\d+)"),
            max_model_len=longest,
            enable_prefix_caching=run.flag("prefix_caching"),  # off unless stated
        ),
        workload=workload,
        measured=_measured(run),
        counted_from="sent",
        not_covered=found.not_covered,
        notes=notes,
    )


def _in_engine(run: Row, pattern: str) -> str | None:
    """A setting within the text that describes the engine."""
    found = re.search(pattern, run.text("engine"))
    return found[1] if found else None


def _whole(run: Row, pattern: str) -> int | None:
    text = _in_engine(run, pattern)
    return int(text) if text else None


def _measured(run: Row) -> Measured:
    found: Measured = {}
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        values = run.values.get(metric)
        if isinstance(values, dict):
            part = Row(f"{run.file}, {metric}", run.line, values)
            found[metric] = {
                STATISTICS[name]: part.number(name) for name in values if name in STATISTICS
            }
    single = {
        ("itl_ms", "mean"): ("mean_itl_ms", 1.0),
        ("e2e_ms", "mean"): ("e2e_mean_s", 1e3),
        ("makespan_s", "value"): ("makespan_s", 1.0),
        ("requests_per_s", "value"): ("req_s", 1.0),
        ("output_tokens_per_s", "value"): ("out_tok_s", 1.0),
    }
    for (metric, statistic), (column, unit) in single.items():
        if run.given(column):
            found.setdefault(metric, {})[statistic] = run.number(column) * unit
    return found


def _recorded_arrivals(run: Row, recorded: Sequence[Row]) -> list[float] | None:
    column = _arrival_column(run)
    if run.number("burstiness") != 1 or column not in recorded[0].values:
        return None
    return [row.number(column) for row in recorded]


def _arrival_column(run: Row) -> str:
    gpu = re.match(r"[a-z]+\d+", run.text("gpu").lower())
    rate = f"{run.positive('rate'):g}".replace(".", "p")
    return f"arrival_s_{gpu[0] if gpu else ''}_rate{rate}_poisson"


def _like(run: Row, recorded: Sequence[tuple[int, int]]) -> OpenLoop:
    """The run's own rate and mean lengths, spread as the recorded lengths are."""
    requests = run.whole("n")
    laws = []
    for index, column in enumerate(("total_input_tokens", "total_output_tokens")):
        lengths = [row[index] for row in recorded]
        mean = statistics.fmean(lengths)
        own = run.positive(column) / requests if run.given(column) else mean
        laws.append(LogNormal(round(own, 3), round(statistics.pstdev(lengths) / mean, 3)))
    return OpenLoop(
        rate_rps=run.positive("rate"),
        arrival="gamma" if run.number("burstiness") != 1 else "poisson",
        num_requests=requests,
        prompt=laws[0],
        output=laws[1],
        burstiness=run.positive("burstiness"),
    )


def _turns(path: Path) -> str:
    """The turns in the columns of a `sessions` workload.

    The source's gap follows a turn, ours precedes one. A first turn's prefix that other sessions
    share, too, cannot be written there.
    """
    rows = []
    last: dict[str, Row] = {}
    starts: dict[str, float] = {}
    for row in sorted(read_csv(path, TURN_COLUMNS), key=lambda row: row.whole("turn", 0)):
        session, before = row.text("session"), last.get(row.text("session"))
        last[session] = row
        starts.setdefault(session, row.number("off_submit_s"))
        shared = row.whole("shared_prefix_tokens", 0) if before else 0
        gap = before.number("post_gap_s") if before else 0.0
        lengths = row.whole("input_tokens"), row.whole("output_tokens")
        turn = row.whole("turn", 0) + 1
        rows.append((session, turn, starts[session], gap, *lengths, shared))
    return table(SESSION_COLUMNS, rows)
