"""Public start-up logs and threads whose right answer is known: sizes, blocks, tokens, lines.

Each test names the thread. "Exact" where the numbers in it determine the answer; where a log was
rounded to two decimals of a GiB, the tolerance is what that is worth.
"""

import pytest

from servesim.app.size import size
from servesim.kv.groups import CacheRules, KVGroup, layout_of
from servesim.kv.startup_log import StartUp, logged
from servesim.model.parts import KVLayers
from servesim.units import BYTES_PER_GIB

LLAMA_8B = ("model=llama3.1_8b", "hardware=rtx_3090", "scheduler=vllm_v0")
NO_TERMS = ("size.non_torch_gib=0", "size.activation_gib=0", "size.cuda_graph_gib=0")


def gib_of(tokens, bytes_per_token):
    return tokens * bytes_per_token / BYTES_PER_GIB


# --- Llama-3.1-8B on a 3090, vLLM 0.6 (vllm#10517) ---


def test_the_logged_blocks_give_the_logged_concurrency():
    row = size(*LLAMA_8B, "max_model_len=20000", "kv.num_gpu_blocks=1952")
    assert row["kv_bytes_per_token"] == 131_072
    assert row["kv_cache_tokens"] == 31_232
    assert "# GPU blocks: 1952," in row["engine_log"]
    assert "Maximum concurrency for 20000 tokens per request: 1.56x" in row["engine_log"]
    assert row["starts"]


def test_the_logged_cache_gives_the_blocks_within_its_rounding():
    row = size(
        *LLAMA_8B, "max_model_len=20000", "size.weights_gib=14.9888", "size.kv_cache_gib=3.81"
    )
    assert row["num_gpu_blocks"] == int(3.81 * 512) == 1950
    assert row["num_gpu_blocks"] == pytest.approx(1952, abs=3)  # 0.005 GiB are 2.6 blocks
    assert row["engine_log"].endswith("1.56x")
    assert row["rest_gib"] == pytest.approx(23.58 * 0.9 - 14.9888 - 3.81, abs=1e-6)


def test_a_longer_context_leaves_too_little_and_is_refused_with_the_largest_that_fits():
    row = size(*LLAMA_8B, "max_model_len=29000", "kv.num_gpu_blocks=1478")
    assert row["kv_cache_tokens"] == row["largest_context_tokens"] == 23_648
    assert row["engine_log"].endswith("0.82x")
    assert not row["starts"]
    (warning,) = row["warnings"]
    assert "refuses to start" in warning
    assert "max_model_len=23648" in warning


def test_capacity_is_not_monotone_in_the_context():
    """V0 profiles max_model_len tokens until it chunks by itself, beyond 32,768."""
    rows = [
        size(*LLAMA_8B, f"max_model_len={n}", "size.weights_gib=14.9888")
        for n in (20_000, 29_000, 35_000)
    ]
    caches = [row["kv_cache_gib"] for row in rows]
    assert caches[0] - caches[1] == pytest.approx(3.81 - 2.89, abs=0.01)
    assert caches[0] == pytest.approx(3.81, abs=0.15)
    assert caches[2] > caches[0]
    assert [row["starts"] for row in rows] == [True, False, True]


# --- other start-up logs ---


def test_a_quantised_70b():
    """vllm PR#12569: w8a8, utilisation 0.98, 67.72 GiB of weights, 1,381 blocks, 10.79x."""
    row = size(
        *("model=llama3.1_70b", "hardware=h100_sxm", "scheduler=vllm_v0", "max_model_len=2048"),
        *("gpu_memory_utilization=0.98", "size.weights_gib=67.72", "kv.num_gpu_blocks=1381"),
    )
    assert row["kv_bytes_per_token"] == 327_680
    assert row["kv_cache_gib"] == pytest.approx(6.743, abs=0.0005)
    assert row["engine_log"].endswith("10.79x")
    assert any("1.03 bytes per parameter, as of fp8 or int8" in w for w in row["warnings"])


@pytest.mark.parametrize("scheduler", ["vllm_v1_0.11", "vllm_v1"])
def test_blocks_of_16(scheduler):
    """vllm PR#13596: 127,626 blocks, 2,048 tokens per request: 997.08x."""
    row = size(
        *("model=llama3.1_8b", "hardware=h200_sxm", f"scheduler={scheduler}"),
        *("kv.num_gpu_blocks=127626", "max_model_len=2048"),
    )
    assert row["kv_cache_tokens"] == 2_042_016
    assert "997.08x" in row["engine_log"]


def test_a_kv_head_that_ranks_share_is_on_each_of_them():
    """vllm#21348: Qwen3-235B-A22B-FP8 on 4 ranks; SGLang's tokens are exact, vLLM's to 1.2 %."""
    model = ("model=qwen3_235b_a22b_fp8", "hardware=h100_sxm", "tp=4")
    tokens = ("kv.num_gpu_blocks=367404", "kv.block_size=1")
    sglang = size(*model, "scheduler=sglang", *tokens, "gpu_memory_utilization=0.95")
    assert sglang["kv_bytes_per_token"] == 48_128
    assert sglang["kv_cache_gib"] / 2 == pytest.approx(8.234, abs=0.0005)
    assert "#tokens: 367404, K size: 8.23 GB, V size: 8.23 GB" in sglang["engine_log"]
    vllm = size(*model, "scheduler=vllm_v1_0.11", "size.kv_cache_gib=8.11")
    assert vllm["kv_cache_tokens"] == pytest.approx(178_880, rel=0.012)


def test_a_pool_of_requests_of_a_thousand_tokens():
    """Tandemn#11: Qwen2.5-7B on an A10G, 77,088 tokens: 72 of 256 run at 1,071 tokens each."""
    row = size(
        *("model=qwen2.5_7b", "hardware=a10g", "kv.num_gpu_blocks=4818", "max_model_len=4096"),
        *("size.prompt_tokens=1024", "size.output_tokens=46", "scheduler=vllm_v1_0.11"),
    )
    assert row["kv_cache_tokens"] == 77_088
    assert row["kv_cache_gib"] == pytest.approx(4.117, abs=0.0005)
    assert row["requests_fit"] == (4818 - 1) // 67 == 71


@pytest.mark.parametrize(
    ("kv_dtype", "tokens", "logged_tokens"), [("bf16", 27_150, 27_142), ("fp8", 54_301, 54_284)]
)
def test_slots_of_single_tokens(kv_dtype, tokens, logged_tokens):
    """FreeToken#126: Qwen3-1.7B, 2.90 GiB."""
    row = size(
        *("model=qwen3_1.7b", "hardware=rtx_4090", "scheduler=sglang", f"kv_dtype={kv_dtype}"),
        "size.kv_cache_gib=2.90",
    )
    assert row["kv_cache_tokens"] == tokens
    assert tokens == pytest.approx(logged_tokens, abs=0.005 / 2.90 * tokens)


@pytest.mark.parametrize("tp", [1, 8])
def test_a_latent_is_on_every_rank(tp):
    """sglang#13466: Kimi-K2, 8,050 tokens are 0.53 GB however many ranks there are."""
    row = size(
        *("model=kimi_k2", "hardware=mi325x", f"tp={tp}", "dtype=fp8", "kv_dtype=bf16"),
        *("scheduler=sglang", "kv.num_gpu_blocks=8050", "kv.block_size=1", "max_model_len=8000"),
    )
    assert row["kv_bytes_per_token"] == 61 * 576 * 2
    assert row["kv_cache_gib"] == pytest.approx(0.527, abs=0.0005)
    assert row["engine_log"].endswith("#tokens: 8050, KV size: 0.53 GB")


def test_a_latent_in_8_bit_blocks():
    """ik_llama#259: 32,768 tokens of DeepSeek's latent in q8_0 are 1,166.6 MiB."""
    row = size(
        *("model=deepseek_v3", "hardware=mi325x", "tp=8", "dtype=fp8", "kv_dtype=q8_0"),
        *("size.prompt_tokens=32767", "size.output_tokens=1"),
    )
    assert row["request_kv_gib"] * 1024 == pytest.approx(1166.6, abs=0.05)


def test_a_latent_is_served_by_data_parallel_ranks():
    """vllm#51454: DeepSeek-V4-Flash on 8 B200, 2**20 tokens: 20.43x by TP8, 156.9x by DP8."""
    common = ("model=deepseek_v4_flash", "hardware=b200_sxm", "dtype=fp8", "max_model_len=1048576")
    tp, dp = size(*common, "tp=8"), size(*common, "dp=8")
    assert tp["kv_bytes_per_token"] == dp["kv_bytes_per_token"]
    ratio = dp["dp_max_concurrency"] / tp["max_concurrency"]
    assert ratio == pytest.approx(156.9 / 20.43, abs=0.05)


# --- recurrent layers ---


@pytest.mark.parametrize(
    ("model", "block", "exact"),
    [("nemotron_nano_9b_v2", 672, 658.0), ("qwen3.6_27b", 784, 783.0)],
)
def test_attention_blocks_are_raised_to_a_state(model, block, exact):
    """vllm#24280, LMCache#5079."""
    row = size(f"model={model}", "hardware=h200_sxm", "max_model_len=32768")
    (state,) = [k["state_bytes"] for k in row["kv_layers"] if k["state_bytes"]]
    (per_token,) = [k["bytes_per_token"] for k in row["kv_layers"] if k["bytes_per_token"]]
    assert state / per_token == pytest.approx(exact, abs=0.05)
    assert row["block_size"] == block


def test_the_padding_of_a_state_is_the_logged_one():
    """vllm PR#37467, Qwen3.5-9B: 32 value heads of 128 × 128 in fp32: 528 tokens, 0.76 %."""
    state = 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2
    caches = [
        KVLayers("full attention", 8, 4096, None, 0),
        KVLayers("recurrent", 24, 0, None, state),
    ]
    layout = layout_of(caches, CacheRules(16))
    assert (layout.block_size, f"{layout.state_padding:.2%}") == (528, "0.76%")


def test_states_in_another_format():
    wide = size(
        *("model=nemotron_nano_9b_v2", "hardware=h200_sxm", "max_model_len=32768"),
        "size.mamba_ssm_cache_dtype=fp32",
    )
    assert wide["block_size"] == -(-(128 * 80 * 128 * 4 + 12_288 * 3 * 2) // (16 * 4096)) * 16


def test_groups_take_their_blocks_from_one_pool():
    """Qwen3.6-27B: 16 attention and 48 recurrent layers are one and three groups."""
    common = ("model=qwen3.6_27b", "hardware=h200_sxm", "max_model_len=32768")
    row = size(*common, "kv.num_gpu_blocks=1000")
    per_request = -(-32_768 // 784) + 3 * 2  # two states each with prefix caching
    assert row["max_concurrency"] == 1000 / per_request
    assert row["kv_cache_tokens"] == int(1000 / per_request * 32_768)
    plain = size(*common, "kv.num_gpu_blocks=1000", "kv.enable_prefix_caching=false")
    assert plain["max_concurrency"] == 1000 / (per_request - 3)
    drafts = size(*common, "kv.num_gpu_blocks=1000", "size.num_speculative_tokens=2")
    assert drafts["max_concurrency"] == 1000 / (per_request + 3 * 2)


def test_a_prefix_below_one_block_is_never_found():
    """vllm#54607: a system prompt of 240 tokens and blocks of 784."""
    row = size(
        *("model=qwen3.6_27b", "hardware=h200_sxm", "max_model_len=32768"),
        "size.shared_prefix_tokens=240",
    )
    assert (row["prefix_tokens"], row["prefix_hit_tokens"]) == (784, 0)
    dense = size("model=qwen3_8b", "hardware=h200_sxm", "size.shared_prefix_tokens=240")
    assert dense["prefix_hit_tokens"] == 240
    drafted = size(
        *("model=qwen3_8b", "hardware=h200_sxm", "size.shared_prefix_tokens=240"),
        "size.draft_layers=1",
    )
    assert drafted["prefix_hit_tokens"] == 224


# --- windows ---


def test_bounds_of_a_model_with_windows():
    """hf-mem#70: gpt-oss-20b, 32 requests of 8,192 tokens: 6.09 GiB, 12.00 without windows."""
    row = size(
        *("model=gpt_oss_20b", "hardware=h100_sxm", "size.num_requests=32"),
        *("size.prompt_tokens=8000", "size.output_tokens=192"),
    )
    assert row["requests_kv_gib"] == 6.09375
    assert row["requests_kv_without_windows_gib"] == 12.0


def test_a_pool_without_groups():
    """tt-xla#5727: Gemma-4-31B, 51.00 GiB: 60,768 tokens if every layer kept every token."""
    per_token = size("model=gemma4_31b", "hardware=h200_sxm", "max_model_len=32768")[
        "kv_bytes_per_token"
    ]
    assert per_token == 901_120
    uniform = layout_of([KVLayers("full attention", 1, per_token, None, 0)], CacheRules(16))
    blocks = int(51.00 * BYTES_PER_GIB) // uniform.block_bytes
    assert blocks * 16 == 60_768


def test_blocks_over_blocks_per_request():
    """tt-xla#5860: 7,584 blocks, 128 of them per request: 59.25x."""
    layout = layout_of([KVLayers("full attention", 1, 2, None, 0)], CacheRules(32))
    start = StartUp(7584, layout, 4096, 2, "bf16", latent=False)
    assert logged("vllm-0.33", start)[1] == 59.25
    assert logged("vllm-0.33", start)[2][0].endswith("59.25x")


def test_windows_make_a_cache_hold_ten_times_the_context():
    """vllm#43308: Gemma-4-31B, 50 GB: about 55 k tokens uniform and 525 k with groups."""
    row = size(
        *("model=gemma4_31b", "hardware=h200_sxm", "max_model_len=262144"),
        f"size.kv_cache_gib={50e9 / BYTES_PER_GIB}",
    )
    assert 50e9 / row["kv_bytes_per_token"] == pytest.approx(55_000, rel=0.01)
    assert row["largest_context_tokens"] == pytest.approx(525_000, rel=0.02)
    assert row["kv_growth_bytes_per_token"] == 81_920


def test_two_steps_in_flight():
    """vllm#54703: window 4, block 4, 16,384 tokens per step, asynchronous: 8,194 blocks."""
    rules = CacheRules(4, True, in_flight_tokens=2 * 16_384)
    assert KVGroup("sliding window", 1, 4, 4).blocks(10**6, rules) == 8194


@pytest.mark.parametrize(("asynchronous", "factor"), [("false", 1), ("true", 2)])
def test_asynchronous_scheduling_keeps_two_steps_beside_a_window(asynchronous, factor):
    row = size(
        *("model=gpt_oss_20b", "hardware=h100_sxm", f"scheduler.async_scheduling={asynchronous}"),
        *("size.prompt_tokens=100000", "size.output_tokens=1000"),
    )
    windows = -(-(127 + factor * 8192) // 16) + 1
    assert row["request_blocks"] == -(-101_000 // 16) + windows


def test_windows_and_full_layers_of_unlike_heads():
    """MiMo-V2-Flash: 9 full layers of 2,560 B, 39 windows of 128 tokens of 5,120 B."""
    row = size(
        *("model=mimo_v2_flash", "hardware=mi325x", "tp=4", "kv.num_gpu_blocks=100000"),
        *("size.prompt_tokens=99999", "size.output_tokens=1"),
    )
    assert row["kv_growth_bytes_per_token"] == 23_040 // 4
    assert row["request_kv_gib"] == gib_of(1, 23_040 // 4 * 100_000 + 199_680 // 4 * 128)
    # the pages of 16 tokens of a window are the pages of 32 of a full layer
    assert {g["block_size"] for g in row["kv_groups"]} == {16, 32}
    assert row["block_size"] == 32


# --- sums over several GPUs ---


@pytest.mark.parametrize(("dtype", "requests"), [("bf16", 109), ("fp8", 324)])
def test_a_70b_on_four_cards_of_80_gb(dtype, requests):
    """airunway#139: about 360 requests at 4K were hoped for; in GB and without a reserve."""
    row = size(
        *("model=llama3.1_70b", "hardware=h100_sxm", "tp=4", f"dtype={dtype}"),
        *(f"hardware.memory_gib={80e9 / BYTES_PER_GIB}", "gpu_memory_utilization=0.9"),
        *("max_model_len=4096", "size.prompt_tokens=4000", "size.output_tokens=96", *NO_TERMS),
    )
    assert row["requests_fit"] == requests
    assert int(row["max_concurrency"]) == requests


def test_a_start_up_log_of_an_a6000():
    """LLMServingSim, vLLM 0.13rc2, eager, 2,048 tokens and 128 requests: 27.04 GiB, 108.16x."""
    common = (
        *("model=llama3.1_8b", "hardware=rtx_a6000", "scheduler=vllm_v1_0.11"),
        *("scheduler.max_num_batched_tokens=2048", "scheduler.max_num_seqs=128"),
        "max_model_len=2048",
    )
    row = size(*common, "size.kv_cache_gib=27.04")
    assert row["num_gpu_blocks"] == pytest.approx(13_844, abs=3)
    exact = size(*common, "kv.num_gpu_blocks=13844")
    assert exact["engine_log"] == (
        "GPU KV cache size: 221,504 tokens\n"
        "Maximum concurrency for 2,048 tokens per request: 108.16x"
    )
    derived = size(*common, "size.weights_gib=14.9889")
    assert derived["kv_cache_gib"] == pytest.approx(27.04, abs=0.05)
