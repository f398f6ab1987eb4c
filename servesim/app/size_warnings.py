"""What does not go together in an answer of `servesim size`, and what would explain it."""

from collections.abc import Iterator

from servesim.app.size_causes import SLACK, causes_of
from servesim.app.size_setup import Sizing
from servesim.kv.startup_log import logged
from servesim.units import gib

_WEIGHT_SLACK = 0.05


def warnings_of(sizing: Sizing) -> list[str]:
    """One line each."""
    return [
        *_start(sizing),
        *_beyond_model(sizing),
        *_weights(sizing),
        *_cache_too_large(sizing),
        *_blocks_against_bytes(sizing),
        *_tokens_against_blocks(sizing),
        *_bytes_per_token(sizing),
    ]


def starts(sizing: Sizing) -> bool:
    """Whether one request of `max_model_len` fits, without which vLLM refuses to start."""
    return sizing.derived.holds(sizing.max_model_len)


def largest_context(sizing: Sizing) -> int:
    """Tokens of the longest request that fits alone, whatever the model's own limit."""
    layout, blocks = sizing.budget.layout, sizing.derived.blocks_at_start_up
    most = max(blocks * max(g.block_size for g in layout.groups), sizing.max_model_len)
    return layout.longest(blocks, most)


def _start(sizing: Sizing) -> Iterator[str]:
    if starts(sizing):
        return
    needed = sizing.budget.layout.blocks_per_request(sizing.max_model_len)
    largest = largest_context(sizing)
    refuses = sizing.engine.log.startswith("vllm")
    end = f"{sizing.engine.engine} refuses to start" if refuses else "such a request never fits"
    nearest = f"max_model_len={largest}" if largest else "none"
    yield (
        f"{end}: one request of max_model_len {sizing.max_model_len} takes {needed} blocks and "
        f"{sizing.derived.blocks_at_start_up} are there; the largest that fits: {nearest}"
    )


def _beyond_model(sizing: Sizing) -> Iterator[str]:
    model = sizing.deployment.model
    if sizing.max_model_len > model.max_position_embeddings:
        yield (
            f"max_model_len {sizing.max_model_len} is beyond the model's "
            f"max_position_embeddings {model.max_position_embeddings}"
        )


def _weights(sizing: Sizing) -> Iterator[str]:
    """Measured weights far from the derived ones are those of another format or layout."""
    deployment, budget = sizing.deployment, sizing.budget
    model, tp = deployment.model, deployment.tp
    if "weights_gib" not in sizing.measured or not budget.weight_bytes:
        return
    derived = sum(part.rank_bytes for part in sizing.weights) + sizing.draft.weight_bytes
    if abs(budget.weight_bytes - derived) <= _WEIGHT_SLACK * derived:
        return
    each = budget.weight_bytes * tp / model.num_parameters
    yield (
        f"size.weights_gib={gib(budget.weight_bytes):g} is {budget.weight_bytes / derived:.2f} of "
        f"the {gib(derived):.2f} GiB that dtype={deployment.dtype} and tp={tp} give; it is "
        f"{each:.2f} bytes per parameter{_format_of(each)}"
    )


def _format_of(bytes_each: float) -> str:
    formats: dict[float, str] = {4: "32-bit weights", 2: "16-bit weights", 1: "fp8 or int8 weights"}
    formats |= {0.53: "4-bit weights"}
    close = [name for size, name in formats.items() if abs(bytes_each / size - 1) < 0.1]
    return f", as of {close[0]}" if close else ", as of no plain format: another tp, or a mixture"


def _cache_too_large(sizing: Sizing) -> Iterator[str]:
    """More cache than memory × utilisation − weights leaves."""
    budget, gpu = sizing.budget, sizing.deployment.gpu
    cache = budget.kv_cache_bytes
    if budget.given:
        cache = budget.num_gpu_blocks * budget.layout.block_bytes
    left = budget.usable_bytes - budget.weight_bytes
    if cache <= left:
        return
    what = "kv.num_gpu_blocks" if budget.given else "size.kv_cache_gib"
    value = budget.num_gpu_blocks if budget.given else f"{gib(cache):g}"
    share = (cache + budget.weight_bytes) / budget.memory_bytes
    reasons = []
    if share <= 1:
        reasons.append(f"gpu_memory_utilization of {share:.3f} or more")
    else:
        reasons.append(f"a GPU of {gib(cache + budget.weight_bytes):.2f} GiB or more")
    room = budget.usable_bytes - cache
    if room > 0 and budget.weight_bytes:
        reasons.append(
            f"weights of {gib(room):.2f} GiB or less per GPU "
            f"({room / budget.weight_bytes:.2f} of these: more ranks or a narrower dtype)"
        )
    reasons.append("a figure summed over several GPUs, where one is meant")
    yield (
        f"{what}={value} contradicts the rest: memory {gib(budget.memory_bytes):.2f} GiB of "
        f"{gpu.name} × {sizing.engine.utilization:g} − weights "
        f"{gib(budget.weight_bytes):.2f} leaves {gib(left):.2f} GiB for a cache of "
        f"{gib(cache):.2f} GiB; what would explain it: {', or '.join(reasons)}"
    )


def _blocks_against_bytes(sizing: Sizing) -> Iterator[str]:
    """Both a number of blocks and their size were given."""
    budget = sizing.budget
    if not budget.given or "kv_cache_gib" not in sizing.measured:
        return
    implied = budget.kv_cache_bytes / budget.num_gpu_blocks
    yield from _other_layout(
        sizing,
        f"kv.num_gpu_blocks={budget.num_gpu_blocks} and "
        f"size.kv_cache_gib={gib(budget.kv_cache_bytes):g} give {implied:,.0f} bytes per block",
        implied / budget.layout.block_bytes,
        f"{budget.layout.block_bytes:,}",
    )


def _tokens_against_blocks(sizing: Sizing) -> Iterator[str]:
    """Logged tokens were given, to compare with."""
    tokens = sizing.asked.kv_cache_tokens
    if tokens is None:
        return
    derived, _, _ = logged(sizing.engine.log, sizing.start_up)
    yield from _other_layout(
        sizing,
        f"size.kv_cache_tokens={tokens}",
        derived / tokens,
        f"{derived:,} tokens",
    )


def _bytes_per_token(sizing: Sizing) -> Iterator[str]:
    """Somebody's figure was given, to compare with."""
    given, derived = sizing.asked.kv_bytes_per_token, sizing.budget.kv_bytes_per_token
    if given is not None:
        text = f"size.kv_bytes_per_token={given:.12g}"
        yield from _other_layout(sizing, text, given / derived, f"{derived:,}")


def _other_layout(sizing: Sizing, given: str, ratio: float, derived: str) -> Iterator[str]:
    """Say by how much it differs, and which other layout has blocks `ratio` times as large."""
    if abs(ratio - 1) <= SLACK:
        return
    shown = f"{ratio:.3f}" if 0.01 <= ratio < 1e6 else f"{ratio:.3g}"
    yield (
        f"{given}, where {derived} follow from the layout: bytes per token differ by a factor of "
        f"{shown}; what would explain it: {causes_of(sizing, ratio)}"
    )
