from dataclasses import replace

import pytest

from servesim.deployment import Deployment
from servesim.errors import CapacityError, SettingError
from servesim.hardware.gpu import GPU
from servesim.kv.budget import Draft, Needs
from servesim.kv.capacity import KVSettings
from servesim.kv.groups import CacheRules
from servesim.model.attention import Attention
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.parts import KVLayers
from servesim.model.spec import ModelSpec
from servesim.units import gib_to_bytes

LLAMA_8B = ModelSpec("llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
QWEN_32B = ModelSpec("qwen-32b", 64, 5120, 64, 8, 128, 25600, 151936, False, 40960, qk_norm=True)


NEEDS = Needs(0.92, 2**30, 3 * 2**29, 2**29)  # 1, 1.5 and 0.5 GiB: 3 in all


def gpu(memory_gib):
    return GPU("gpu", memory_gib, 1000.0, {"bf16": 100.0}, 100.0)


def test_budget_is_memory_less_weights_and_reserve():
    # 80 × 0.9 − 14.958 − 3 = 54.042 GiB over 2 MiB a block
    needs = NEEDS._replace(utilization=0.9)
    budget = KVSettings().budget(Deployment(LLAMA_8B, gpu(80)), needs)
    assert budget.num_gpu_blocks == int((80 * 0.9 - 3) * 512) - -(-budget.weight_bytes // 2**21)
    assert budget.num_gpu_blocks == 27669
    assert budget.kv_bytes_per_token == 131072
    assert budget.kv_cache_tokens == (27669 - 1) * 16  # the null block holds nothing
    assert not budget.given


def test_a_public_start_up_log_is_matched():
    # vllm#10517: RTX 3090 of 23.58 GiB at 0.90, 3.81 GiB left for the cache: 1952 blocks, and
    # 1.56 requests of 20 000 tokens. Two decimals of a GiB are worth five blocks.
    deployment = Deployment(LLAMA_8B, gpu(23.58))
    reserve = 23.58 * 0.90 - LLAMA_8B.weight_bytes("bf16") / 2**30 - 3.81
    needs = NEEDS._replace(utilization=0.9)
    budget = KVSettings(reserve_gib=reserve).budget(deployment, needs)
    assert budget.num_gpu_blocks == pytest.approx(1952, abs=5)
    assert round(budget.kv_cache_tokens / 20_000, 2) == 1.56


def test_given_blocks_are_taken_as_they_are():
    budget = KVSettings(num_gpu_blocks=100).budget(Deployment(QWEN_32B, gpu(24)), NEEDS)
    assert (budget.num_gpu_blocks, budget.given) == (100, True)
    assert budget.describe() == "100 KV blocks × 16 tokens (262144 B per token), given"


def test_describe_adds_up():
    deployment = Deployment(LLAMA_8B, gpu(80))
    text = KVSettings().budget(deployment, NEEDS).describe()
    terms = "not torch's 1.00 - activations 1.50 - CUDA graphs 0.50"
    assert f"80.00 GiB × 0.92 - weights 14.96 - {terms} GiB) per GPU" in text
    text = KVSettings(reserve_gib=3).budget(deployment, NEEDS).describe()
    assert "80.00 GiB × 0.92 - weights 14.96 - reserve 3.00 GiB) per GPU" in text
    text = KVSettings(kv_cache_gib=4).budget(deployment, NEEDS).describe()
    assert text.endswith("per token) = 4.00 GiB per GPU, given")


def test_tensor_parallel_ranks_halve_weights_and_kv():
    one = KVSettings().budget(Deployment(LLAMA_8B, gpu(80)), NEEDS)
    two = KVSettings().budget(Deployment(LLAMA_8B, gpu(80), tp=2), NEEDS)
    assert two.kv_bytes_per_token * 2 == one.kv_bytes_per_token
    norms = 2 * (2 * 32 + 1) * 4096  # bf16, on both ranks
    assert two.weight_bytes == (one.weight_bytes - norms) // 2 + norms


def test_fp8_cache_doubles_the_tokens_of_a_given_space():
    bf16 = KVSettings().budget(Deployment(LLAMA_8B, gpu(80)), NEEDS)
    fp8 = KVSettings().budget(Deployment(LLAMA_8B, gpu(80), kv_dtype="fp8"), NEEDS)
    assert fp8.num_gpu_blocks // 2 == bf16.num_gpu_blocks


def test_no_room_names_the_terms():
    with pytest.raises(CapacityError) as caught:
        KVSettings().budget(Deployment(QWEN_32B, gpu(24)), NEEDS)
    assert str(caught.value) == (
        "no KV cache: qwen-32b (bf16, tp=1) needs 61.02 GiB of weights and non_torch_gib=1, "
        "activation_gib=1.5, cuda_graph_gib=0.5 of 22.08 GiB usable on gpu"
    )
    with pytest.raises(CapacityError, match="GiB of weights and reserve_gib=3 of 22"):
        KVSettings(reserve_gib=3).budget(Deployment(QWEN_32B, gpu(24)), NEEDS)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("block_size", 0),
        ("block_size", 16.0),
        ("num_gpu_blocks", 1),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.01),
        ("reserve_gib", -1),
        ("weights_gib", -1),
        ("kv_cache_gib", "x"),
        ("activation_gib", -0.1),
        ("enable_prefix_caching", None),
    ],
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(SettingError, match=rf"^{setting}={value!r}: "):
        KVSettings(**{setting: value})


def test_a_reserve_stands_for_the_three_terms():
    deployment = Deployment(LLAMA_8B, gpu(80))
    derived = KVSettings().budget(deployment, NEEDS)
    assert derived.rest == {
        "non_torch_gib": 2**30,
        "activation_gib": 3 * 2**29,
        "cuda_graph_gib": 2**29,
    }
    reserve = KVSettings(reserve_gib=3.0).budget(deployment, NEEDS)
    assert reserve.rest == {"reserve_gib": gib_to_bytes(3.0)}
    assert reserve.num_gpu_blocks == derived.num_gpu_blocks


def test_one_measured_term_leaves_the_others_derived():
    deployment = Deployment(LLAMA_8B, gpu(80))
    derived = KVSettings().budget(deployment, NEEDS)
    measured = KVSettings(activation_gib=2.5).budget(deployment, NEEDS)
    assert derived.num_gpu_blocks - measured.num_gpu_blocks == 512  # a GiB in blocks of 2 MiB


@pytest.mark.parametrize("term", ["non_torch_gib", "activation_gib", "cuda_graph_gib"])
def test_a_reserve_and_one_of_its_terms_are_refused(term):
    reason = f"reserve_gib=3.0: stands for non_torch_gib, .* together, and {term} is given, too"
    with pytest.raises(SettingError, match=reason):
        KVSettings(reserve_gib=3.0, **{term: 0})


def test_blocks_that_are_given_are_cut_into_the_pages_of_the_engine():
    deployment = Deployment(LLAMA_8B, gpu(80))
    settings = KVSettings(num_gpu_blocks=100)
    for page_size, pages in ((1, 1600), (16, 100), (256, 6)):
        rules = CacheRules(page_size, null_block=False)
        budget = settings.budget(deployment, NEEDS, rules=rules)
        assert (budget.num_gpu_blocks, budget.block_size) == (pages, page_size)
        assert budget.kv_cache_tokens == pages * page_size
    # of vLLM V1 one block is the null block
    assert settings.budget(deployment, NEEDS).kv_cache_tokens == 99 * 16


def test_measured_weights_and_cache_replace_the_derived_ones():
    deployment = Deployment(LLAMA_8B, gpu(80))
    derived = KVSettings().budget(deployment, NEEDS)
    heavier = KVSettings(weights_gib=derived.weight_bytes / 2**30 + 1).budget(deployment, NEEDS)
    assert derived.num_gpu_blocks - heavier.num_gpu_blocks == 512  # blocks of 2 MiB
    measured = KVSettings(kv_cache_gib=3.81).budget(deployment, NEEDS)
    assert measured.num_gpu_blocks == 1950


def test_a_drafter_takes_room_and_widens_blocks():
    deployment = Deployment(LLAMA_8B, gpu(80))
    draft = Draft(2**30, (KVLayers("full attention", 1, 4096, None, 0),))
    budget = KVSettings().budget(deployment, NEEDS, draft=draft)
    alone = KVSettings().budget(deployment, NEEDS)
    assert budget.weight_bytes == alone.weight_bytes + 2**30
    assert budget.kv_bytes_per_token == 33 * 4096
    assert budget.num_gpu_blocks == (alone.kv_cache_bytes - 2**30) // (33 * 4096 * 16)


def test_blocks_that_groups_share_stand_for_the_tokens_that_the_engine_logs():
    # 12 windows of 128 tokens and 12 full layers: a request of 8 192 tokens takes 512 + 513 blocks
    attention = Attention(8, 8, 64, 64)
    window = replace(attention, window_tokens=128)
    layers = tuple(Layer(m, MLP(256), 0) for m in (window, attention) * 12)
    model = replace(LLAMA_8B, num_layers=24, layers=layers)
    settings = KVSettings(num_gpu_blocks=2050)
    budget = settings.budget(Deployment(model, gpu(80)), NEEDS, max_model_len=8192)
    assert budget.num_gpu_blocks == 2050
    assert budget.kv_cache_tokens == int(2050 / 1025 * 8192) == 16_384
    assert budget.describe() == (
        "2050 KV blocks × 16 tokens (49152 B per token), shared by 2 groups of layers: "
        "16384 tokens, given"
    )
