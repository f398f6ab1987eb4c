"""Routed experts of a step from measurements that the test writes, by formulas that it knows."""

import numpy as np
import pytest

from servesim.errors import SettingError
from validation.fit.kernels.deployments import card_of, deployment, model_of
from validation.fit.kernels.moe import Experts, Routed
from validation.fit.kernels.shapes import shapes_of
from validation.sources.aiconfigurator import Table

H100, GH200 = card_of("h100_sxm"), card_of("gh200_96gb")
MIXTRAL = Experts(hidden=4096, width=14336, chosen=2, number=8, tp=1)
TOKENS = np.array([1.0, 2, 4, 8, 16, 64, 256, 1024, 4096])
SLOWDOWN = 1.25  # against the least time
US_PER_EXPERT = 3 * 4096 * 14336 * 2 / 3.35e6  # bf16, 3,350 GB/s


def even_us(tokens: np.ndarray) -> np.ndarray:
    """Evenly routed: min(8, 2 n) experts are read, and a microsecond per token beyond four."""
    reached = np.minimum(8, 2 * tokens)
    return SLOWDOWN * US_PER_EXPERT * reached + np.maximum(tokens - 4, 0)


def routed(*laws: tuple[float, np.ndarray], gpu=H100) -> Routed:
    """Experts of Mixtral as a table, by skew."""
    sizes = {"hidden_size": 4096, "inter_size": 14336, "topk": 2, "num_experts": 8}
    number = len(laws) * len(TOKENS)
    columns = {name: np.full(number, float(value)) for name, value in sizes.items()}
    columns |= {name: np.ones(number) for name in ("moe_tp_size", "moe_ep_size")}
    columns["num_tokens"] = np.tile(TOKENS, len(laws))
    columns["skewed"] = np.repeat([skew for skew, _ in laws], len(TOKENS))
    us = np.concatenate([us for _, us in laws])
    return Routed(Table("moe.parquet", "1", columns, us), "bf16", gpu)


def test_one_token_and_very_many_take_what_was_measured():
    table = routed((0.0, even_us(TOKENS)))
    read = table.us(MIXTRAL, np.array([1.0, 4096.0]), H100)
    assert read == pytest.approx(even_us(np.array([1.0, 4096.0])), rel=1e-6)


def test_tokens_that_choose_by_themselves_reach_fewer_experts_than_even_routing():
    two = np.array([2.0])
    reached = 8 * (1 - 0.75**2)
    assert MIXTRAL.reached(two) == pytest.approx(reached)
    (us,) = routed((0.0, even_us(TOKENS))).us(MIXTRAL, two, H100)
    assert us == pytest.approx(SLOWDOWN * US_PER_EXPERT * reached, rel=1e-3)


def test_even_routing_is_preferred_to_a_power_law_and_the_flattest_to_others():
    laws = (1.01, 3 * even_us(TOKENS)), (1.2, 4 * even_us(TOKENS))
    even = routed((0.0, even_us(TOKENS))).us(MIXTRAL, TOKENS, H100)
    assert routed(*laws, (0.0, even_us(TOKENS))).us(MIXTRAL, TOKENS, H100).tolist() == even.tolist()
    assert routed(*laws).us(MIXTRAL, TOKENS, H100) == pytest.approx(3 * even_us(TOKENS))


def test_other_sizes_take_the_ratio_to_their_least_time_at_as_many_tokens_per_expert():
    scout = Experts(hidden=5120, width=8192, chosen=1, number=16, tp=1)
    table = routed((0.0, even_us(TOKENS)))
    assert table.donor(scout) == MIXTRAL
    tokens = np.array([256.0])
    ratio = table.us(MIXTRAL, tokens / 4, H100) / MIXTRAL.least_us(tokens / 4, "bf16", H100)
    expected = ratio * 3 * 5120 * 8192 * 2 / 3.35e6 * 16 * (1 - (15 / 16) ** 256)
    assert table.us(scout, tokens, H100) == pytest.approx(expected, rel=1e-6)


def test_a_gpu_with_faster_memory_reads_them_faster_and_computes_alike():
    table = routed((0.0, even_us(TOKENS)))
    few, many = np.array([4.0]), np.array([4096.0])
    saved = [table.us(MIXTRAL, n, H100) - table.us(MIXTRAL, n, GH200) for n in (few, many)]
    expected = US_PER_EXPERT * MIXTRAL.reached(few) * (1 - 3350 / 4000)
    assert saved[0] == pytest.approx(expected)
    assert saved[1] == 0


def test_experts_that_are_like_no_measured_ones_are_refused():
    small = Experts(hidden=1024, width=256, chosen=8, number=512, tp=1)
    with pytest.raises(SettingError, match=r"inter_size 256.*nor anything like it"):
        routed((0.0, even_us(TOKENS))).us(small, TOKENS, H100)


def test_gating_and_the_sum_with_shared_experts_are_kernels_of_their_own():
    # embedding and final norm; per layer two norms, rotary embedding and gating
    mixtral = shapes_of(deployment("h100_sxm", "mixtral_8x7b", 2, "bf16", "bf16", "vllm"))
    assert mixtral.element_wise.launches == 2 + 32 * 4
    # beside these: the norm of q and k, the shared expert's activation, and its addition
    scout = shapes_of(deployment("h100_sxm", "llama4_scout", 2, "fp8", "bf16", "vllm"))
    assert scout.element_wise.launches == 2 + 48 * (4 + 2) + norms_of_q_and_k("llama4_scout")


def norms_of_q_and_k(model: str) -> int:
    layers = model_of(model).all_layers
    return sum(1 for layer in layers if layer.mixer.qk_norm_parameters)
