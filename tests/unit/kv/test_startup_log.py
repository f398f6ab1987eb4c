import pytest

from servesim.kv.groups import CacheRules, layout_of
from servesim.kv.startup_log import StartUp, logged
from servesim.model.parts import KVLayers

DENSE = layout_of([KVLayers("full attention", 32, 4096, None, 0)], CacheRules(16))
HYBRID = layout_of(
    [KVLayers("full attention", 16, 4096, None, 0), KVLayers("recurrent", 48, 0, None, 3_207_168)],
    CacheRules(16),
)


def start(layout=DENSE, blocks=1000, length=2040, latent=False):
    return StartUp(blocks, layout, length, 131_072, "bf16", latent)


def test_newest_one_line_whose_tokens_follow_from_the_concurrency():
    # 2 040 tokens are 128 blocks: 1000 / 128 = 7.8125 requests, int(7.8125 × 2040) tokens
    tokens, requests, lines = logged("vllm-0.33", start())
    assert (tokens, requests) == (15_937, 7.8125)
    assert lines == (
        "GPU KV cache size: 15,937 tokens, Maximum concurrency for 2,040 tokens per request: 7.81x",
    )


def test_two_lines_before():
    assert logged("vllm-0.11", start()) == (
        16_000,
        7.8125,
        (
            "GPU KV cache size: 16,000 tokens",
            "Maximum concurrency for 2,040 tokens per request: 7.81x",
        ),
    )


def test_groups_divided_the_tokens_of_the_two_lines():
    tokens, requests, _ = logged("vllm-0.11", start(HYBRID, length=32_768))
    assert tokens == 1000 // 4 * 784
    assert requests == 1000 / (42 + 6)


def test_the_first_v1_did_not_round_a_request_to_blocks():
    tokens, requests, lines = logged("vllm-0.8", start())
    assert (tokens, requests) == (16_000, 16_000 / 2040)
    assert lines[1].endswith("2,040 tokens per request: 7.84x")


def test_v0_counted_blocks():
    # 4 GiB of swap space over 2 MiB a block
    assert logged("vllm-v0", start())[2] == (
        "# GPU blocks: 1000, # CPU blocks: 2048",
        "Maximum concurrency for 2040 tokens per request: 7.84x",
    )


@pytest.mark.parametrize(
    ("latent", "sizes"), [(False, "K size: 0.98 GB, V size: 0.98 GB"), (True, "KV size: 1.95 GB")]
)
def test_sglang_counts_tokens_and_gib(latent, sizes):
    tokens, _, (line,) = logged("sglang", start(latent=latent))
    assert tokens == 16_000
    assert line == f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: 16000, {sizes}"


def test_others_print_nothing_of_the_kind():
    assert logged("", start()) == (16_000, 16_000 / 2040, ())
    assert logged("", start(HYBRID, length=32_768))[0] == int(1000 / 48 * 32_768)
