"""Prefill and decode by arithmetic: what a KV cache takes, and what it saves."""

import pytest

from servesim.app.size import size
from servesim.cost.bounds import token_passes

LAYOUT = ("model=llama3.1_70b", "hardware=h200_sxm", "tp=2")
H200_BYTES_PER_S, H200_FLOP_PER_S = 4.8e12, 989.4e12


def of_all_ranks(row, key):
    return row[key] * row["tp"]


def test_a_token_of_a_70b_with_grouped_queries_has_300_kb_of_kv():
    row = size(*LAYOUT)
    assert of_all_ranks(row, "kv_bytes_per_token") == 2 * 80 * 8 * 128 * 2 == 327_680


@pytest.mark.parametrize(("tokens", "gb"), [(10_000, 3.28), (1_000_000, 327.68)])
def test_a_context_of_ten_thousand_has_3_gb_and_a_million_more_than_weights_and_gpu(tokens, gb):
    row = size(*LAYOUT, f"size.prompt_tokens={tokens - 1}", "size.output_tokens=1")
    kv_gib = of_all_ranks(row, "request_kv_gib")
    assert kv_gib * 2**30 / 1e9 == pytest.approx(gb, abs=0.005)
    is_larger = kv_gib > of_all_ranks(row, "weights_gib"), kv_gib > row["memory_gib"]
    assert is_larger == (tokens == 1_000_000,) * 2


def test_a_cache_saves_all_but_one_pass_of_a_token():
    """1,000 prompt and 500 reply tokens: 625,250 token passes without a cache, 1,500 with one.

    Reply token i leaves a context of 1,000 + i tokens, all of which a pass without a cache
    computes; with one each of the 1,500 is computed once.
    """
    by_hand = sum(1000 + i for i in range(1, 501)), 1000 + 500
    assert token_passes(1000, 500) == by_hand == (625_250, 1_500)
    row = size(*LAYOUT, "size.prompt_tokens=1000", "size.output_tokens=500")
    assert row["token_passes_without_cache"] == 625_250
    assert row["token_passes_with_cache"] == 1_500


def test_prefill_is_bound_by_flops_and_decode_by_bytes():
    """8,000 tokens in and 500 out."""
    row = size(*LAYOUT, "size.prompt_tokens=8000", "size.output_tokens=500")
    layers = 70_553_706_496 - 2 * 128_256 * 8192
    keys = 80 * 8000 * 8001 // 2  # token i attends to i keys in each layer
    flops = 2 * (layers * 8000 + 128_256 * 8192) + 2 * 2 * 64 * 128 * keys
    assert row["prefill_at_least_s"] == pytest.approx(flops / 2 / H200_FLOP_PER_S)
    assert row["prefill_at_least_s"] == pytest.approx(0.596, abs=0.001)
    # 499 steps read the weights but the embedding, and a context of 8,250.5 tokens at the mean
    weights = (row["weights_gib"] - row["weights_by_part_gib"]["embedding"]) * 2**30
    mean_kv = 163_840 * 8250.5
    decode_s = 499 * (weights + mean_kv) / H200_BYTES_PER_S
    assert row["decode_at_least_s"] == pytest.approx(decode_s, rel=1e-4)
    assert row["decode_at_least_s"] == pytest.approx(7.36, abs=0.05)
    # the cache that is held in the end, and what reading it takes per step halfway through
    assert row["request_kv_gib"] == 163_840 * 8500 / 2**30
    assert row["kv_read_s"] == 163_840 * 8250 / H200_BYTES_PER_S
    share_of_tokens, share_of_time = 500 / 8500, decode_s / (decode_s + row["prefill_at_least_s"])
    assert share_of_tokens < 0.06
    assert share_of_time > 0.9
