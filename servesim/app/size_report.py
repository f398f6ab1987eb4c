"""The answer of `servesim size` as one row."""

from typing import Any

from servesim.app.size_requests import Requests
from servesim.app.size_setup import Sizing
from servesim.app.size_warnings import largest_context, starts, warnings_of
from servesim.kv.capacity import in_blocks_of
from servesim.kv.groups import growth_bytes, request_bytes
from servesim.kv.startup_log import ONE_GROUP, logged
from servesim.units import gib


def row_of(sizing: Sizing, requests: Requests) -> dict[str, Any]:
    """All figures under the names of JSON keys; sizes are of one GPU."""
    tokens, concurrency, lines = logged(sizing.engine.log, sizing.start_up)
    budget, layout = sizing.budget, sizing.budget.layout
    return {
        **_what(sizing),
        **_memory(sizing),
        "kv_bytes_per_token": budget.kv_bytes_per_token,
        "kv_growth_bytes_per_token": growth_bytes(sizing.caches),
        "kv_layers": [cache._asdict() for cache in sizing.caches],
        "block_size": budget.block_size,
        "block_bytes": layout.block_bytes,
        "kv_groups": [group._asdict() for group in layout.groups],
        "state_padding": layout.state_padding,
        "num_gpu_blocks": budget.num_gpu_blocks,
        "kv_cache_tokens": tokens,
        "max_concurrency": concurrency,
        "dp_max_concurrency": concurrency * sizing.dp,
        "simulated_num_gpu_blocks": _simulated_blocks(sizing),
        "engine_log": "\n".join(lines),
        "starts": starts(sizing),
        "largest_context_tokens": largest_context(sizing),
        "prefix_tokens": layout.prefix_tokens,
        **_requests(sizing, requests),
        "notes": [
            *sizing.deployment.model.notes,
            *sizing.engine.notes,
            *_logged_of_one_group(sizing),
            *_too_long(sizing),
        ],
        "warnings": warnings_of(sizing),
    }


def _simulated_blocks(sizing: Sizing) -> int:
    """`kv.num_gpu_blocks` with which a simulation has this cache, to a block of `kv.block_size`."""
    budget, layout = sizing.budget, sizing.budget.layout
    # an engine with a page size of its own has other blocks
    given = in_blocks_of(sizing.settings.block_size, sizing.caches, layout)
    return budget.num_gpu_blocks * layout.block_bytes // given.block_bytes


def _what(sizing: Sizing) -> dict[str, Any]:
    deployment = sizing.deployment
    return {
        "model": deployment.model.name,
        "hardware": deployment.gpu.name,
        "engine": sizing.engine.engine,
        "tp": deployment.tp,
        "dp": sizing.dp,
        "dtype": deployment.dtype,
        "kv_dtype": deployment.kv_dtype,
        "max_model_len": sizing.max_model_len,
        "max_num_batched_tokens": sizing.engine.max_num_batched_tokens,
        "max_num_seqs": sizing.engine.max_num_seqs,
    }


def _memory(sizing: Sizing) -> dict[str, Any]:
    """The terms, and where each comes from: "given" or "derived"."""
    deployment, budget = sizing.deployment, sizing.budget
    weights = {part.name: gib(part.rank_bytes) for part in sizing.weights}
    if sizing.draft.weight_bytes:
        weights["draft"] = gib(sizing.draft.weight_bytes)
    cache = budget.kv_cache_bytes
    if budget.given and "kv_cache_gib" not in sizing.measured:
        cache = budget.num_gpu_blocks * budget.layout.block_bytes
    row: dict[str, Any] = {
        "memory_gib": gib(budget.memory_bytes),
        "memory_source": deployment.gpu.memory_source,
        "gpu_memory_utilization": sizing.engine.utilization,
        "usable_gib": gib(budget.usable_bytes),
        "num_parameters": deployment.model.num_parameters,
        "active_parameters": deployment.model.active_parameters,
        "weights_gib": gib(budget.weight_bytes),
        "weights_by_part_gib": weights,
    }
    row |= {name: gib(size) for name, size in budget.rest.items()}
    row["given"] = sorted(sizing.measured | ({"num_gpu_blocks"} if budget.given else set()))
    row["kv_cache_gib"] = gib(cache)
    row["rest_gib"] = gib(budget.usable_bytes - budget.weight_bytes - cache)
    return row


def _logged_of_one_group(sizing: Sizing) -> list[str]:
    """Releases that print the tokens of one group hold more of them where layers keep windows."""
    groups, budget = len(sizing.budget.layout.groups), sizing.budget
    if sizing.engine.log != ONE_GROUP or groups == 1:
        return []
    return [
        f"this release logs the tokens of one of {groups} groups, blocks / {groups} × block size; "
        f"requests of max_model_len fill the same blocks with {budget.kv_cache_tokens:,} tokens"
    ]


def _too_long(sizing: Sizing) -> list[str]:
    asked = sizing.asked
    tokens = asked.prompt_tokens + asked.output_tokens
    if tokens <= sizing.max_model_len:
        return []
    return [f"requests of {tokens:,} tokens are beyond max_model_len {sizing.max_model_len:,}"]


def _requests(sizing: Sizing, requests: Requests) -> dict[str, Any]:
    asked, layout = sizing.asked, sizing.budget.layout
    row: dict[str, Any] = {
        "prompt_tokens": asked.prompt_tokens,
        "output_tokens": asked.output_tokens,
        "request_blocks": requests.blocks,
        "request_kv_gib": gib(requests.kv_bytes),
        "requests_fit": requests.fit,
        "requests_at_a_time": requests.at_a_time,
        "kv_read_s": requests.kv_read_s,
        "prefill_at_least_s": requests.prefill_s,
        "decode_step_at_least_s": requests.step_s,
        "full_decode_step_at_least_s": requests.full_step_s,
        "decode_at_least_s": requests.decode_s,
        "token_passes_without_cache": requests.passes.without_cache,
        "token_passes_with_cache": requests.passes.with_cache,
    }
    if asked.num_requests is not None:
        tokens = asked.prompt_tokens + asked.output_tokens
        whole = [cache._replace(window_tokens=None) for cache in sizing.caches]
        row["num_requests"] = asked.num_requests
        row["requests_kv_gib"] = gib(asked.num_requests * request_bytes(sizing.caches, tokens))
        row["requests_kv_without_windows_gib"] = gib(
            asked.num_requests * request_bytes(whole, tokens)
        )
    if asked.shared_prefix_tokens is not None:
        hit = layout.prefix_hit(asked.shared_prefix_tokens, drops_last=asked.draft_layers > 0)
        row["shared_prefix_tokens"] = asked.shared_prefix_tokens
        row["prefix_hit_tokens"] = hit
        row["prefix_hit_share"] = hit / asked.shared_prefix_tokens
    return row
