"""The answer of `servesim size` for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from servesim.units import BYTES_PER_GIB

_BAR = 60  # characters
_REST = {
    "non_torch_gib": "not torch's (context, NCCL)",
    "activation_gib": "activations at the peak",
    "cuda_graph_gib": "CUDA graphs",
    "reserve_gib": "reserve for the rest",
}


def print_answer(row: Mapping[str, Any], console: Console) -> None:
    """Memory, cache, requests, notes, warnings."""
    console.print(
        f"{row['model']} on {row['hardware']}, {row['engine']}; tp={row['tp']}, dp={row['dp']}, "
        f"dtype={row['dtype']}, kv_dtype={row['kv_dtype']}, max_model_len={row['max_model_len']}",
        style="bold",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table("memory of one GPU", "GiB", _memory(row)))
    console.print(_picture(row), highlight=False, soft_wrap=True)
    console.print(_table("KV cache on one GPU", "", _cache(row)))
    for line in row["engine_log"].splitlines():
        console.print(f'engine log: "{line}"', highlight=False, soft_wrap=True, markup=False)
    title = f"requests of {row['prompt_tokens']:,} + {row['output_tokens']:,} tokens"
    console.print(_table(title, "", _requests(row)))
    for note in (*row["notes"], *_notes(row)):
        console.print(f"- {note}", style="dim", highlight=False, soft_wrap=True)
    for warning in row["warnings"]:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)


def _table(title: str, unit: str, rows: Iterable[tuple[str, str, str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(title, no_wrap=True)
    table.add_column(unit, justify="right")
    table.add_column("", style="dim")
    for cells in rows:
        table.add_row(*cells)
    return table


def _memory(row: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    share = row["gpu_memory_utilization"]
    yield "memory", _gib(row["memory_gib"]), row["memory_source"]
    yield f"× utilization {share:.4g}", _gib(row["usable_gib"]), ""
    yield "− weights", _gib(row["weights_gib"]), _origin(row, "weights_gib")
    for part, size in row["weights_by_part_gib"].items():
        yield f"    {part}", _gib(size), ""
    if _cache_given(row):
        yield "− left for the rest", _gib(row["rest_gib"]), "follows"
        for name, label in _REST.items():
            if name in row:
                yield f"    {label}", _gib(row[name]), f"{_origin(row, name)}, not used"
    else:
        for name, label in _REST.items():
            if name in row:
                yield f"− {label}", _gib(row[name]), _origin(row, name)
    origin = "given" if _cache_given(row) else "derived"
    yield "= KV cache", _gib(row["kv_cache_gib"]), origin


def _cache_given(row: Mapping[str, Any]) -> bool:
    return not {"kv_cache_gib", "num_gpu_blocks"}.isdisjoint(row["given"])


def _origin(row: Mapping[str, Any], name: str) -> str:
    return "given" if name in row["given"] else "derived"


def _cache(row: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    per_token = row["kv_bytes_per_token"]
    yield "bytes per token", f"{per_token:,}", ""
    for layers in row["kv_layers"]:
        yield f"    {layers['num_layers']} × {_kind(layers)}", _of_layers(layers), ""
    if row["kv_growth_bytes_per_token"] != per_token:
        growth = f"{row['kv_growth_bytes_per_token']:,}"
        yield "    beyond the windows", growth, ""
    groups = row["kv_groups"]
    sharing = "" if len(groups) == 1 else f"for {len(groups)} groups of layers"
    yield "bytes per block", f"{row['block_bytes']:,}", sharing
    yield "tokens per block", f"{row['block_size']:,}", _padding(row)
    yield "blocks", f"{row['num_gpu_blocks']:,}", ""
    yield "tokens", f"{row['kv_cache_tokens']:,}", ""
    yield "requests of max_model_len", f"{row['max_concurrency']:.2f}", ""
    if row["dp"] > 1:
        yield f"    of all {row['dp']} data-parallel ranks", f"{row['dp_max_concurrency']:.2f}", ""
    yield "largest context that fits", f"{row['largest_context_tokens']:,}", ""
    yield "shared prefixes are found in steps of", f"{row['prefix_tokens']:,}", "tokens"


def _kind(layers: Mapping[str, Any]) -> str:
    window = layers["window_tokens"]
    return str(layers["kind"]) + (f" of {window:,} tokens" if window else "")


def _of_layers(layers: Mapping[str, Any]) -> str:
    if layers["state_bytes"]:
        return f"{layers['state_bytes']:,} B state"
    return f"{layers['num_layers'] * layers['bytes_per_token']:,}"


def _padding(row: Mapping[str, Any]) -> str:
    padding = row["state_padding"]
    return "" if padding is None else f"states padded by {padding:.2%}"


def _requests(row: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    yield "KV of one, GiB", _gib(row["request_kv_gib"]), f"at most {row['request_blocks']:,} blocks"
    yield "fit at a time", f"{row['requests_fit']:,}", f"max_num_seqs {row['max_num_seqs']:,}"
    yield "reading one's KV, per step", _time(row["kv_read_s"]), "at peak bandwidth"
    yield "prefill of one", _time(row["prefill_at_least_s"]), "at least"
    yield "decode step of one", _time(row["decode_step_at_least_s"]), "at least"
    seats = f"at least, {row['requests_at_a_time']:,} requests"
    yield "decode step of all", _time(row["full_decode_step_at_least_s"]), seats
    yield "decode of one", _time(row["decode_at_least_s"]), "at least"
    without = f"{row['token_passes_without_cache']:,} without a cache"
    yield "token passes", f"{row['token_passes_with_cache']:,}", without
    if "num_requests" in row:
        all_full = f"{_gib(row['requests_kv_without_windows_gib'])} if no layer had a window"
        yield f"KV of {row['num_requests']:,}, GiB", _gib(row["requests_kv_gib"]), all_full
    if "prefix_hit_tokens" in row:
        share = f"{row['prefix_hit_share']:.0%} of {row['shared_prefix_tokens']:,}"
        yield "found of a shared prefix", f"{row['prefix_hit_tokens']:,}", share


def _notes(row: Mapping[str, Any]) -> list[str]:
    notes = [
        "least times: the larger of FLOPs at peak and bytes at peak bandwidth; no efficiency, no "
        "communication, no host"
    ]
    blocks = row["simulated_num_gpu_blocks"]
    return [*notes, f"to simulate with this cache: kv.num_gpu_blocks={blocks}"]


def _picture(row: Mapping[str, Any]) -> str:
    """How weights, rest and cache share the memory, to scale."""
    parts = (("#", "weights_gib"), ("+", "rest_gib"), ("=", "kv_cache_gib"))
    bar = ""
    for sign, name in parts:
        share = min(max(row[name] / row["memory_gib"], 0), 1)
        bar += sign * round(_BAR * share)
    bar = bar[:_BAR].ljust(_BAR, ".")
    return f"|{bar}| # weights, + rest, = KV cache, . left to others"


def _gib(size: float) -> str:
    if 0 < abs(size) < 0.0095:
        return f"{size * BYTES_PER_GIB / 2**20:,.2f} MiB"
    return f"{size:,.2f}"


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.3f} ms"
