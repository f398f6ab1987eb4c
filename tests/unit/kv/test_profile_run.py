import pytest

from servesim.kv.profile_run import activation_bytes, graph_bytes, non_torch_bytes
from servesim.model.from_hf import published
from servesim.model.spec import ModelSpec

LLAMA_8B = ModelSpec("llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, False, 131072)


def test_activations_per_token_are_those_of_a_public_pair_of_logs():
    # vllm#10517: 9 000 more tokens took 3.81 - 2.89 GiB of the cache, both rounded to 0.01
    few, many = (activation_bytes(LLAMA_8B, "bf16", 1, n, 1) for n in (20_000, 29_000))
    assert (many - few) / 9000 == 2 * (3 * 14336 + 3 * 4096) == 110_592
    assert (many - few) / 2**30 == pytest.approx(3.81 - 2.89, abs=0.01)


def test_logits_count_where_there_are_many_rows():
    assert activation_bytes(LLAMA_8B, "bf16", 1, 1, 1024) == 1024 * 128_256 * 14
    assert activation_bytes(LLAMA_8B, "bf16", 1, 8192, 1) == 8192 * 110_592


def test_ranks_share_widths_and_not_the_hidden_state():
    assert activation_bytes(LLAMA_8B, "bf16", 2, 1000, 1) == 1000 * 2 * (3 * 7168 + 3 * 4096)


def test_activations_of_narrow_weights_are_in_16_bits():
    for dtype, size in (("fp32", 4), ("bf16", 2), ("fp8", 2), ("int4", 2)):
        assert activation_bytes(LLAMA_8B, dtype, 1, 10_000, 1) == 10_000 * 55_296 * size


def test_a_token_passes_the_experts_that_it_is_routed_to():
    moe = published(
        "moe",
        model_type="mixtral",
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=1000,
        vocab_size=100,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    width = 2 * 3 * 1000 + 2 * 64 + 3 * 64
    assert activation_bytes(moe, "bf16", 1, 500, 1) == 500 * width * 2


def test_graphs_and_libraries():
    assert graph_bytes(LLAMA_8B, 102) / 2**30 == pytest.approx(0.48, abs=0.005)
    assert graph_bytes(LLAMA_8B, 0) == 0
    assert [non_torch_bytes(tp) / 2**30 for tp in (1, 2, 8)] == [0.5, 1.5, 1.5]
