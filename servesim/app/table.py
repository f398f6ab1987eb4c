"""The summary of a run as a table for the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from servesim.app.result import Result
from servesim.metrics.base import Value

_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "queue": "queueing"}
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
    "prefix_hit_rate": "prefix hit rate",
    "preemptions": "preemptions",
    "recomputed_tokens": "recomputed tokens",
    "unfinished": "unfinished",
    "rejected": "rejected",
    "failed": "failed",
}
_SHARES = {"slo_attainment", "kv_use_mean", "kv_use_max", "prefix_hit_rate", "busy_fraction"}
_MS_METRICS = {"tpot", "itl"}


def print_result(result: Result, console: Console) -> None:
    """Latencies, then the rest, then what the numbers rest on."""
    summary = result.summary
    console.print(_latency_table(summary))
    console.print(_other_table(summary))
    for note in result.notes:
        console.print(f"- {note}", style="dim", highlight=False, soft_wrap=True)
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)


def _latency_table(summary: Mapping[str, Value]) -> Table:
    stats = ["mean", *(_percentiles(summary))]
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
    return f"{summary.get('order')}{at}"


def _percentiles(summary: Mapping[str, Value]) -> list[str]:
    found = [key[len("ttft_") : -len("_s")] for key in summary if key.startswith("ttft_p")]
    return sorted(found, key=lambda stat: float(stat[1:]))


def _time(value: Value, in_ms: bool) -> str:
    if not isinstance(value, float):
        return ""
    return f"{value * 1e3:.1f}" if in_ms else f"{value:.3f}"


def _other_table(summary: Mapping[str, Value]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("left", "right", "left", "right"):
        table.add_column(justify=justify)
    rows = [(label, _cell(key, summary[key])) for key, label in _LABELS.items() if key in summary]
    half = (len(rows) + 1) // 2
    for i in range(half):
        right = rows[half + i] if half + i < len(rows) else ("", "")
        table.add_row(rows[i][0], rows[i][1], f"   {right[0]}", right[1])
    return table


def _cell(key: str, value: Value) -> str:
    if value is None:
        return "-"
    if key in _SHARES and isinstance(value, int | float):
        return f"{value:.1%}"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if value else "0"
