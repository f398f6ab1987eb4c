"""The summary of a run as tables for the terminal."""

import re
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from servesim.app.result import Result
from servesim.metrics.base import Value
from servesim.metrics.distribution import PERCENTILE_METHOD

_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "queue": "queueing"}
_MS_METRICS = {"tpot", "itl"}
_LATENCY_COLUMN = re.compile(rf"({'|'.join(_LATENCIES)})_(mean|p[\d.]+)_s")
_LABELS = {
    "requests": "requests",
    "duration_s": "duration, s",
    "request_throughput_rps": "finished, requests/s",
    "output_throughput_tokens_per_s": "output, tokens/s",
    "total_throughput_tokens_per_s": "input + output, tokens/s",
    "goodput_rps": "goodput, requests/s",
    "slo_attainment": "within SLO",
    "batch_size_mean": "batch size, mean",
    "batch_size_max": "batch size, largest",
    "busy_fraction": "engine busy",
    "kv_use_mean": "KV use, mean",
    "kv_use_max": "KV use, peak",
    "kv_waste": "KV held unused",
    "prefix_hit_rate": "prefix hit rate",
    "preemptions": "preemptions",
    "recomputed_tokens": "recomputed tokens",
    "recomputed_share": "recomputed, of all tokens",
    "unfinished": "unfinished",
    "rejected": "rejected",
    "failed": "failed",
}
_SHARES = {
    *("slo_attainment", "kv_use_mean", "kv_use_max", "prefix_hit_rate", "busy_fraction"),
    *("recomputed_share", "kv_waste"),
}
# columns that the title, a label, a note or a warning tells of, and totals behind a rate or share
_TOLD_OTHERWISE = {
    *("model", "hardware", "cost", "workload", "scheduler", "order", "victim", "admission"),
    *("tp", "rate_rps", "seed"),
    *("slo_ttft_s", "slo_tpot_s", "num_gpu_blocks", "finished", "rejected_reason"),
    *("steps", "steps_skipped", "steps_outside_fit", "outside_fit", "cost_mismatch"),
    *("offered_rps", "rho", "backlog_growth_rps", "overloaded"),
    *("prompt_tokens", "output_tokens", "tokens_per_step"),
    *("prefix_hit_tokens", "preempted_requests"),
    *("trace_rows", "duplicate_rows", "rows_out_of_order"),
    *("prompts_lengthened_to_prefix", "replies_capped", "concurrency", "sessions"),
    *("front_end", "front_end_queue_s", "front_end_queue_s_per_prompt_token"),
    *("front_end_output_s", "front_end_queue_s_per_request_at_once"),
}


def print_result(result: Result, console: Console) -> None:
    """Latencies, then the rest, then what the numbers rest on."""
    summary = {k: v for k, v in result.summary.items() if not _is_bound(k, result.summary)}
    console.print(_latency_table(summary))
    known = ((_label(key, summary), _cell(key, summary[key])) for key in _LABELS if key in summary)
    console.print(_two_columns(known))
    other = [(key, _cell(key, value)) for key, value in summary.items() if _is_unknown(key)]
    if other:
        console.print("other", style="bold")
        console.print(_two_columns(other))
    for note in (*_method_notes(summary), *result.notes, *_interval_notes(result.summary)):
        console.print(f"- {note}", style="dim", highlight=False, soft_wrap=True)
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)


def _latency_table(summary: Mapping[str, Value]) -> Table:
    stats = ["mean", *_percentiles(summary)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(_title(summary))
    for stat in stats:
        table.add_column(stat, justify="right")
    for name, label in _LATENCIES.items():
        in_ms = name in _MS_METRICS
        cells = [_time(summary.get(f"{name}_{stat}_s"), in_ms) for stat in stats]
        if any(cells):
            table.add_row(f"{label}, {'ms' if in_ms else 's'}", *cells)
    return table


def _title(summary: Mapping[str, Value]) -> str:
    rate = summary.get("rate_rps")
    at = "" if rate is None else f" at {rate:g} requests/s"
    if summary.get("concurrency") is not None:
        at = f" at a concurrency of {summary['concurrency']}"
    return f"{summary.get('order')}{at}"


def _percentiles(summary: Mapping[str, Value]) -> list[str]:
    found = [key[len("ttft_") : -len("_s")] for key in summary if key.startswith("ttft_p")]
    return sorted(found, key=lambda stat: float(stat[1:]))


def _time(value: Value, in_ms: bool) -> str:
    if not isinstance(value, float):
        return ""
    return f"{value * 1e3:.1f}" if in_ms else f"{value:.3f}"


def _two_columns(rows: Iterable[tuple[str, str]]) -> Table:
    """Labels and values, the second half beside the first."""
    rows = list(rows)
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left", "right"):
        table.add_column(justify=justify)
    half = (len(rows) + 1) // 2
    for i in range(half):
        right = rows[half + i] if half + i < len(rows) else ("", "")
        table.add_row(rows[i][0], rows[i][1], f"   {right[0]}", right[1])
    return table


def _label(key: str, summary: Mapping[str, Value]) -> str:
    first, per_token = summary.get("slo_ttft_s"), summary.get("slo_tpot_s")
    if key == "slo_attainment" and first is not None and per_token is not None:
        return f"within TTFT ≤ {float(first):g} s, TPOT ≤ {float(per_token) * 1e3:g} ms"
    return _LABELS[key]


def _is_unknown(key: str) -> bool:
    """A metric or count that came later than this table."""
    known = key in _LABELS or key in _TOLD_OTHERWISE
    return not known and _LATENCY_COLUMN.fullmatch(key) is None


def _is_bound(key: str, summary: Mapping[str, Value]) -> bool:
    """An end of an interval, which the files have and the table tells for means only."""
    column, _, end = key.rpartition("_")
    return end in ("low", "high") and column in summary


def _interval_notes(summary: Mapping[str, Value]) -> list[str]:
    ranges = []
    for name, label in _LATENCIES.items():
        bounds = [summary.get(f"{name}_mean_s_{end}") for end in ("low", "high")]
        in_ms = name in _MS_METRICS
        low, high = (_time(bound, in_ms) for bound in bounds)
        if low and high:
            ranges.append(f"{label} {low} to {high} {'ms' if in_ms else 's'}")
    return [f"means within {', '.join(ranges)}"] if ranges else []


def _method_notes(summary: Mapping[str, Value]) -> list[str]:
    notes = []
    if "ttft_mean_s" in summary:
        start = "sending" if summary.get("concurrency") else "the intended arrival"
        notes.append(f"percentiles by {PERCENTILE_METHOD}, latencies from {start}")
    skipped, steps = summary.get("steps_skipped"), summary.get("steps")
    if skipped and steps is not None:
        notes.append(
            f"{skipped:,} of {steps:,} steps decide nothing and were not looked at one by one; "
            "stepwise=true looks at all and gives the same numbers"
        )
    return notes


def _cell(key: str, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, str | bool):
        return str(value)
    if key in _SHARES:
        return f"{value:.1%}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
