"""Which slip, or which other layout, makes a number of bytes per token `ratio` times as large."""

from dataclasses import replace
from itertools import combinations
from math import prod

from servesim.app.size_setup import Sizing
from servesim.kv.groups import growth_bytes, layout_of
from servesim.model.attention import LatentAttention
from servesim.model.dtypes import DTYPE_BYTES

# ranks differ by a few blocks and logs round; a different layout makes 2 times, 8 times, …
SLACK = 0.012
_TP_SIZES = (1, 2, 4, 8)
_KV_DTYPES = ("bf16", "fp8", "fp32")
_PER_ELEMENT = "bytes per element"
_MOST = 3  # causes that are named


def causes_of(sizing: Sizing, ratio: float) -> str:
    """Causes in words, the likeliest first: one slip, another layout, or two slips at once."""
    slips = _slips(sizing)
    found = [text for text, factor in slips.items() if _is(factor, ratio)]
    found += _layouts(sizing, ratio)
    if not found:
        pairs = combinations(slips.items(), 2)
        found = [
            " and ".join(text for text, _ in pair)
            for pair in pairs
            if _is(prod(factor for _, factor in pair), ratio)
            and not all(_PER_ELEMENT in text for text, _ in pair)
        ]
    return ", or ".join(found[:_MOST]) or "another layout or budget"


def _is(factor: float, ratio: float) -> bool:
    return abs(factor / ratio - 1) <= SLACK


def _slips(sizing: Sizing) -> dict[str, float]:
    """Factors by which figures are wrong in practice."""
    deployment = sizing.deployment
    model, element = deployment.model, DTYPE_BYTES.get(deployment.kv_dtype, 1)
    slips: dict[str, float] = {}
    heads = model.num_heads / model.num_kv_heads
    quotient = model.hidden_size / model.num_heads  # what a config without head_dim means
    latents = [la.mixer for la in model.all_layers if isinstance(la.mixer, LatentAttention)]
    if latents:
        latent = latents[0]
        slot = latent.kv_lora_rank + latent.qk_rope_head_dim
        head = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim
        slips["keys and values of every head counted, not the latent"] = (
            latent.num_heads * head / slot
        )
        slips["twice kv_lora_rank counted, without the rotary part"] = (
            2 * latent.kv_lora_rank / slot
        )
        slips["keys and values counted, where a latent is both"] = 2.0
        width = 2 * latent.num_heads * quotient
        slips["keys and values of hidden_size counted, not the latent"] = width / slot
    elif heads > 1:
        slips["keys and values counted for every query head"] = heads
    slips[f"8 {_PER_ELEMENT}"] = 8 / element
    slips[f"{8 * element:g} {_PER_ELEMENT} (bits taken for bytes)"] = 8.0
    slips["keys or values alone"] = 0.5
    if not latents and quotient != model.head_dim:
        slips["hidden_size / num_attention_heads taken for head_dim"] = quotient / model.head_dim
    slips |= _slips_of_layers(sizing)
    if deployment.tp > 1:
        slips[f"a sum over {deployment.tp} ranks"] = float(deployment.tp)
    return slips


def _slips_of_layers(sizing: Sizing) -> dict[str, float]:
    """The same for which layers are counted."""
    caches = [cache for cache in sizing.caches if cache.bytes_per_token]
    slips: dict[str, float] = {}
    if len(caches) == 1:
        slips["one layer alone"] = 1 / caches[0].num_layers
        every = sizing.deployment.model.num_layers
        if every > caches[0].num_layers:
            slips["every layer counted as attention"] = every / caches[0].num_layers
    if any(cache.window_tokens for cache in caches) and growth_bytes(caches):
        share = growth_bytes(caches) / sizing.budget.kv_bytes_per_token
        slips["layers with a window left out"] = share
    return slips


def _layouts(sizing: Sizing, ratio: float) -> list[str]:
    """Formats of the cache and numbers of ranks whose blocks are `ratio` times as large."""
    deployment, layout = sizing.deployment, sizing.budget.layout
    latent = any(cache.kind == "latent" for cache in sizing.caches)
    found = []
    for kv_dtype in _KV_DTYPES:
        for tp in _TP_SIZES if not latent else (deployment.tp,):
            other = replace(deployment, kv_dtype=kv_dtype)
            if not other.model.splits_over(tp):
                continue
            size = layout_of(other.model.kv_layers(kv_dtype, tp), layout.rules).block_bytes
            changed = [f"kv_dtype={kv_dtype}"] if kv_dtype != deployment.kv_dtype else []
            if tp != deployment.tp:
                changed += [f"a cache split over {tp} ranks" if tp > 1 else "a cache on one rank"]
            if changed and _is(size / layout.block_bytes, ratio):
                found.append(" with ".join(changed))
    return sorted(found, key=len)
