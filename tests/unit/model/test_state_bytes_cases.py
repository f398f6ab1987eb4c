"""States and compressed caches of public models, worked out by hand; their threads are named."""

import pytest
from published_models import kinds, model, per_token


class TestRecurrent:
    """A recurrent state, and kernel - 1 = 3 columns of 16-bit inputs of the convolution."""

    @pytest.mark.parametrize(
        ("name", "layers", "state", "attention"),
        [
            # vllm#24280: 128 heads of 80 x 128 in bf16, 10 240 + 2 * 8 * 128 channels
            (
                "nemotron_nano_9b_v2",
                27,
                128 * 80 * 128 * 2 + (10_240 + 2048) * 3 * 2,
                2 * 8 * 128 * 2,
            ),
            # LMCache#5079: 48 value heads of 128 x 128 in fp32, 2 * 2 048 + 6 144 channels
            ("qwen3.6_27b", 48, 48 * 128 * 128 * 4 + (4096 + 6144) * 3 * 2, 2 * 4 * 256 * 2),
            # without mamba_ssm_dtype the state is in bf16
            ("qwen3_next_80b_a3b", 36, 32 * 128 * 128 * 2 + 8192 * 3 * 2, 2 * 2 * 256 * 2),
            ("nemotron3_super_120b_a12b_fp8", 40, 128 * 64 * 128 * 4 + 10_240 * 6, 1024),
        ],
    )
    def test_state(self, name, layers, state, attention):
        caches = kinds(model(name))
        assert caches["recurrent", layers].state_bytes == state
        (full,) = [k for k in caches.values() if k.kind == "full attention"]
        assert full.bytes_per_token == attention

    @pytest.mark.parametrize(
        ("name", "tokens"),
        [("nemotron_nano_9b_v2", 658.0), ("qwen3.6_27b", 783.0), ("qwen3_next_80b_a3b", 536.0)],
    )
    def test_tokens_of_attention_that_a_state_is_worth(self, name, tokens):
        caches = kinds(model(name)).values()
        state = max(k.state_bytes for k in caches)
        assert state / max(k.bytes_per_token for k in caches) == pytest.approx(tokens, abs=0.05)

    def test_ranks_share_the_state_by_head(self):
        caches = [kinds(model("qwen3.6_27b"), tp=tp)["recurrent", 48] for tp in (1, 2)]
        assert caches[0].state_bytes == 2 * caches[1].state_bytes
        # Mamba-2's 8 groups are on 8 ranks one each, and on 16 still one each
        one, *more = (kinds(model("nemotron_nano_9b_v2"), tp=tp) for tp in (1, 8, 16))
        ssm, columns = 128 * 80 * 128 * 2, 3 * 2
        assert one["recurrent", 27].state_bytes == ssm + (10_240 + 8 * 256) * columns
        assert [c["recurrent", 27].state_bytes for c in more] == [
            ssm // 8 + (1280 + 256) * columns,
            ssm // 16 + (640 + 256) * columns,
        ]

    def test_only_attention_layers_grow(self):
        # Qwen3.5: 1 of 4 layers attends; Nemotron-3 Nano: 6 of 52
        assert per_token(model("qwen3.6_27b"), "full attention") == 16 * 4096
        assert per_token(model("nemotron3_nano_30b_a3b"), "full attention") == 6 * 2 * 2 * 128 * 2

    def test_kimi_k3(self):
        # 24 latents of 93 layers, 69 of Kimi Delta Attention: 96 heads of 128 x 128 in fp32
        spec = model("kimi_k3")
        assert spec.kv_bytes_per_token("bf16", 8) == 24 * 576 * 2 == 27_648
        delta = kinds(spec)["recurrent", 69]
        assert delta.state_bytes == 96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2


class TestCompressed:
    """DeepSeek-V4-Flash: 43 windows of 128 tokens, 21 layers keep 1 in 4, 20 keep 1 in 128."""

    def test_bytes_per_token(self):
        caches = kinds(model("deepseek_v4_flash"), "fp8")
        window = caches["sliding window", 43]
        assert (window.bytes_per_token, window.window_tokens) == (448 + 2 * 64 + 8, 128)
        assert caches["compressed", 21].bytes_per_token == 584 // 4
        assert caches["compressed", 20].bytes_per_token == 5  # 584 / 128, rounded up
        assert caches["indexer", 21].bytes_per_token == 132 // 4

    def test_it_is_far_below_the_grouped_query_formula(self):
        # sparkrun#247: 2 * 43 * 512 * 2 = 88 064 B/token, 86 GiB of 2**20 tokens
        spec = model("deepseek_v4_flash")
        growth = per_token(spec, "compressed", "fp8") + per_token(spec, "indexer", "fp8")
        assert growth == 21 * 146 + 20 * 5 + 21 * 33 == 3859
        assert 88_064 / growth == pytest.approx(22.8, abs=0.1)

    def test_every_rank_holds_all_of_it(self):
        # vllm-project/recipes#762: a single KV head is replicated under tensor parallelism
        spec = model("deepseek_v4_flash")
        assert spec.kv_layers("fp8", 8) == spec.kv_layers("fp8", 1)
