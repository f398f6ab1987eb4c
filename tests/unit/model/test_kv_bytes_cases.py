"""KV bytes of public models, each worked out by hand; the thread that it is from is named."""

import pytest
from published_models import kinds, model, per_token

from servesim.model.from_hf import published
from servesim.units import gib


@pytest.mark.parametrize(
    ("name", "tp", "layers_heads_dim"),
    [
        ("llama3.1_8b", 1, (32, 8, 128)),  # vllm#10517: 131 072
        ("qwen2.5_7b", 1, (28, 4, 128)),  # vllm#22291: 57 344, not 1.53 MB (bits are not bytes)
        ("qwen3_1.7b", 1, (28, 8, 128)),  # FreeToken#126
        ("qwen3_235b_a22b_fp8", 4, (94, 1, 128)),  # vllm#21348: 48 128 on each of four ranks
        ("qwen3_235b_a22b_fp8", 8, (94, 1, 128)),  # a KV head is on two ranks
        ("llama3.1_70b", 4, (80, 2, 128)),
        ("llama3.1_405b", 1, (126, 8, 128)),  # HF blog#2345 has 16 heads, twice what is published
        ("falcon_7b", 1, (32, 1, 64)),  # multi-query
        ("bloom_176b", 1, (70, 112, 128)),  # multi-head
    ],
)
def test_grouped_query_attention(name, tp, layers_heads_dim):
    layers, kv_heads, head_dim = layers_heads_dim
    assert model(name).kv_bytes_per_token("bf16", tp) == 2 * layers * kv_heads * head_dim * 2


def test_tokens_that_fit_into_stated_sizes():
    # vllm#10517: 3.81 GiB are 1 950.7 blocks of 16, logged as 1 952
    blocks = 3.81 * 2**30 / (16 * model("llama3.1_8b").kv_bytes_per_token("bf16"))
    assert blocks == pytest.approx(1950.7, abs=0.1)
    # vllm#21348: SGLang logs 8.23 GB of K alone for 367 404 tokens; vLLM's 178 880 are 8.018 GiB
    size = model("qwen3_235b_a22b_fp8").kv_bytes_per_token("bf16", 4)
    assert gib(367_404 * size / 2) == pytest.approx(8.234, abs=0.001)
    assert gib(178_880 * size) == pytest.approx(8.018, abs=0.001)
    # FreeToken#126: 2.90 GiB hold 27 150 tokens in bf16 and 54 301 in fp8
    spec = model("qwen3_1.7b")
    for dtype, tokens in (("bf16", 27_150), ("fp8", 54_301)):
        assert int(2.90 * 2**30) // spec.kv_bytes_per_token(dtype) == tokens
    # HF blog#2345, 128 000 tokens of the published 405B: 61.5 GiB
    assert gib(128_000 * model("llama3.1_405b").kv_bytes_per_token("bf16")) == pytest.approx(
        61.5, abs=0.05
    )
    # vllm PR#12569: 1 381 blocks of 16 are 6.743 GiB
    assert gib(1381 * 16 * model("llama3.1_70b").kv_bytes_per_token("bf16")) == pytest.approx(
        6.743, abs=0.001
    )


def test_fp8_halves_a_token_of_whole_heads():
    for name in ("llama3.1_8b", "mixtral_8x7b", "qwen3_235b_a22b"):
        assert 2 * model(name).kv_bytes_per_token("fp8") == model(name).kv_bytes_per_token("bf16")


class TestLatent:
    """LMCache#694: one latent of 512 + 64 per layer, no factor 2, the same on every rank."""

    def test_bytes_per_token(self):
        spec = model("deepseek_v3")
        assert [spec.kv_bytes_per_token("bf16", tp) for tp in (1, 8)] == [61 * 576 * 2] * 2
        assert spec.kv_bytes_per_token("bf16") == 70_272
        assert (spec.num_kv_heads, spec.head_dim) == (1, 576)

    def test_of_kimi_k2(self):
        # sglang#13466: 8 050 tokens, logged as 0.53 GB
        size = gib(8050 * model("kimi_k2").kv_bytes_per_token("bf16"))
        assert size == pytest.approx(0.527, abs=0.0005)

    def test_in_blocks_of_eight_bits(self):
        # ik_llama#259: q8_0, 34 bytes per 32 values: 1 166.6 MiB of 32 768 tokens
        size = 32_768 * model("deepseek_r1").kv_bytes_per_token("q8_0") / 2**20
        assert size == pytest.approx(1166.6, abs=0.05)

    def test_packed_slots(self):
        # 512 fp8 + 4 fp32 scales + 64 bf16; sparse attention has no other fp8 layout
        assert per_token(model("deepseek_v3"), "latent", "fp8_ds_mla") == 61 * 656
        assert per_token(model("deepseek_v3"), "latent", "fp8") == 61 * 576
        assert per_token(model("deepseek_v3.2"), "latent", "fp8") == 61 * 656

    def test_an_indexer_adds_132_bytes(self):
        for dtype in ("bf16", "fp8"):
            assert per_token(model("deepseek_v3.2"), "indexer", dtype, 8) == 61 * 132
        assert per_token(model("glm5"), "indexer") == 78 * 132
        assert per_token(model("deepseek_v3"), "indexer") == 0


class TestWindows:
    def test_gpt_oss(self):
        # hf-mem#70: 32 requests of 8 192 tokens: 12.00 GiB if all layers were full, 6.09 with
        # windows of 128
        caches = kinds(model("gpt_oss_20b"))
        full, window = caches["full attention", 12], caches["sliding window", 12]
        assert full.bytes_per_token == window.bytes_per_token == 2 * 8 * 64 * 2
        assert window.window_tokens == 128
        assert gib(32 * 8192 * model("gpt_oss_20b").kv_bytes_per_token("bf16")) == 12.0
        capped = 32 * 12 * full.bytes_per_token * (8192 + 128)
        assert gib(capped) == pytest.approx(6.09, abs=0.005)

    def test_gemma_4_31b(self):
        # tt-xla#5727: uniform 901 120 B/token, 51.00 GiB hold 60 768 tokens. Global layers have
        # no value projection, but K (rotated) and V are both kept
        spec = model("gemma4_31b")
        caches = kinds(spec)
        assert caches["sliding window", 50].bytes_per_token == 2 * 16 * 256 * 2
        assert caches["full attention", 10].bytes_per_token == 2 * 4 * 512 * 2
        assert spec.kv_bytes_per_token("bf16") == 901_120
        assert gib(60_768 * 901_120) == pytest.approx(51.0, abs=0.01)

    def test_gemma_4_12b_grows_by_its_global_layers(self):
        # Rapid-MLX#1423: 8 layers of 1 head of 512: 16 384 B/token, not 128 KiB
        text = {
            "model_type": "gemma4_text",
            "num_hidden_layers": 48,
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "global_head_dim": 512,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "sliding_window": 1024,
            "vocab_size": 262144,
            "max_position_embeddings": 262144,
        }
        spec = published("gemma-4-12b", model_type="gemma4", text_config=text)
        assert per_token(spec, "full attention") == 16_384

    def test_mimo_v2_has_two_kinds_of_heads(self):
        # K 192 and V 128 wide; 9 full layers of 4 KV heads, 39 windows of 8
        spec = model("mimo_v2_flash")
        assert per_token(spec, "full attention") == 9 * 4 * (192 + 128) * 2 == 23_040
        assert per_token(spec, "sliding window") == 39 * 8 * (192 + 128) * 2 == 199_680
        assert kinds(spec)["sliding window", 39].window_tokens == 128

    def test_a_window_that_is_off_is_none(self):
        keys = {
            "model_type": "qwen2",
            "num_hidden_layers": 28,
            "hidden_size": 3584,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "max_position_embeddings": 131072,
            "sliding_window": 131072,
            "max_window_layers": 28,
            "use_sliding_window": False,
        }
        spec = published("Qwen/Qwen2.5-7B", **keys)
        assert [k.kind for k in spec.kv_layers("bf16")] == ["full attention"]
        assert spec.kv_bytes_per_token("bf16") == 57_344
        on = published("on", **keys | {"use_sliding_window": True, "max_window_layers": 21})
        assert [k.kind for k in on.kv_layers("bf16")] == ["full attention"]  # as long as a context
        on = published(
            "on",
            **keys | {"use_sliding_window": True, "max_window_layers": 21, "sliding_window": 4096},
        )
        assert {k: c.window_tokens for k, c in kinds(on).items()} == {
            ("full attention", 21): None,
            ("sliding window", 7): 4096,
        }


def test_layers_without_attention_keep_nothing():
    """Nemotron-Super-49B: num_key_value_heads is null, 49 of 80 layers attend in groups of 8."""
    spec = model("nemotron_super_49b")
    assert spec.kv_bytes_per_token("bf16") == 49 * 2 * 8 * 128 * 2 == 200_704
    assert kinds(spec).keys() == {("full attention", 49)}


@pytest.mark.parametrize(
    ("hidden", "heads", "head_dim"),
    # Model-Optimizer#2482, dynamo#14431: head_dim is as given where it is given
    [(5120, 32, 128), (2880, 64, 64), (4096, 64, 128)],
)
def test_head_dim_is_not_derived_where_it_is_given(hidden, heads, head_dim):
    keys = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": head_dim,
        "intermediate_size": 4 * hidden,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
    spec = published("odd", **keys)
    assert spec.kv_bytes_per_token("bf16") == 2 * 8 * head_dim * 2
    nested = published("nested", text_config=keys, model_type="some_vlm")
    assert nested.kv_bytes_per_token("bf16") == spec.kv_bytes_per_token("bf16")


def test_requests_of_4k_that_fit_on_four_h100():
    # airunway#139: bf16 holds 109 requests, not 360; all in fp8 324
    spec = model("llama3.1_70b")
    for dtype, requests in (("bf16", 109), ("fp8", 324)):
        room = 4 * 80e9 * 0.9 - spec.weight_bytes(dtype)
        assert int(room / (4096 * spec.kv_bytes_per_token(dtype))) == requests
