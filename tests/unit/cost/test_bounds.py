import pytest

from servesim.cost.bounds import Bounds, PassWork, peak_tflops, token_passes
from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.model.from_hf import published
from servesim.model.spec import ModelSpec

GPU_1 = GPU("gpu", 80.0, 1000.0, {"bf16": 100.0, "fp8": 200.0}, 100.0)
DENSE = ModelSpec("dense", 2, 64, 4, 2, 16, 128, 1000, False, 4096)


def test_a_short_pass_is_bound_by_reading_weights_and_a_long_one_by_flops():
    bounds = Bounds(Deployment(DENSE, GPU_1))
    weights = DENSE.weight_bytes("bf16") - 1000 * 64 * 2  # the embedding is looked up, not read
    assert bounds.seconds(PassWork(1, 1, 2, 0)) == weights / 1e12
    tokens, keys = 10_000, 2 * 10_000 * 10_001 // 2
    layers = DENSE.active_parameters - 2 * 64_000
    flops = 2 * (layers * tokens + 64_000) + 4 * 4 * 16 * keys
    assert bounds.seconds(PassWork(tokens, 1, keys, 0)) == pytest.approx(flops / 1e14)


def test_a_tied_table_is_read_as_the_head():
    tied = ModelSpec("tied", 2, 64, 4, 2, 16, 128, 1000, True, 4096)
    one, two = Bounds(Deployment(tied, GPU_1)), Bounds(Deployment(DENSE, GPU_1))
    assert one.weight_bytes(1) == two.weight_bytes(1) == tied.weight_bytes("bf16")


def test_kv_adds_to_what_is_read():
    bounds = Bounds(Deployment(DENSE, GPU_1))
    empty, read = bounds.seconds(PassWork(1, 1, 0, 0)), bounds.seconds(PassWork(1, 1, 0, 10**9))
    assert read - empty == pytest.approx(1e9 / 1e12)


def test_a_pass_reads_the_experts_that_it_reaches():
    moe = published(
        "moe",
        model_type="mixtral",
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=1000,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    bounds = Bounds(Deployment(moe, GPU_1))
    experts = 2 * 8 * 3 * 64 * 128 * 2
    rest = moe.weight_bytes("bf16") - experts - 64_000 * 2
    assert bounds.weight_bytes(1) == pytest.approx(rest + experts * 2 / 8)
    assert bounds.weight_bytes(2) == pytest.approx(rest + experts * (1 - 0.75**2))
    assert bounds.weight_bytes(1000) == pytest.approx(rest + experts)


@pytest.mark.parametrize(("dtype", "tflops"), [("bf16", 100), ("fp8", 200), ("int4", 100)])
def test_the_peak_is_that_of_the_dtype_or_of_16_bits(dtype, tflops):
    assert peak_tflops(Deployment(DENSE, GPU_1, dtype=dtype, kv_dtype="bf16")) == tflops


@pytest.mark.parametrize(("prompt", "output", "passes"), [(1, 1, (2, 2)), (3, 2, (9, 5))])
def test_token_passes(prompt, output, passes):
    # 3 and 2: contexts of 4 and 5 tokens
    assert token_passes(prompt, output) == passes
