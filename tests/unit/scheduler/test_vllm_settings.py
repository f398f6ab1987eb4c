import pytest

from servesim.errors import SettingError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.records import Request
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.defaults import server_defaults
from servesim.scheduler.vllm.v1 import VllmV1


def gpu(memory_gib, name="H100"):
    return GPU(name, memory_gib, 1.0, {}, 1.0)


def setup(*, memory_gib=79.65, name="H100", max_len=4096, blocks=1000, block_size=16):
    cache = CacheSize(blocks, block_size, enable_prefix_caching=True)
    return EngineSetup(gpu(memory_gib, name), cache, max_len, Fcfs())


@pytest.mark.parametrize(
    ("memory_gib", "name", "limits"),
    [
        (178.4, "B200", (16384, 1024)),
        (140.4, "H200 SXM", (8192, 1024)),
        (79.65, "H100 SXM5", (8192, 1024)),
        (80.0, "A100-SXM4-80GB", (2048, 256)),
        (23.99, "RTX 4090", (2048, 256)),
    ],
)
def test_api_server_defaults_by_gpu(memory_gib, name, limits):
    assert server_defaults(gpu(memory_gib, name)) == limits


@pytest.mark.parametrize(
    ("settings", "max_len", "limits"),
    [
        ({}, 4096, (8192, 1024)),
        ({"max_num_batched_tokens": 512}, 4096, (512, 512)),  # default seqs ≤ tokens
        ({"max_num_seqs": 1}, 4096, (4096, 1)),  # default tokens ≤ seqs × max_model_len
        ({"max_num_seqs": 64}, 4096, (8192, 64)),
        ({}, 4, (4096, 1024)),
        ({"enable_chunked_prefill": False}, 32768, (32768, 1024)),
        ({"max_num_batched_tokens": 4096, "max_num_seqs": 2}, 128, (4096, 2)),  # both kept
    ],
)
def test_limits_adjust_defaults_and_keep_what_is_given(settings, max_len, limits):
    assert VllmV1(**settings).limits(setup(max_len=max_len)) == limits


def test_start_refuses_fewer_tokens_than_sequences():
    with pytest.raises(SettingError, match=r"max_num_batched_tokens=8: .*nearest: 16"):
        VllmV1(max_num_batched_tokens=8, max_num_seqs=16).start(setup())


def test_start_refuses_a_budget_below_max_model_len_without_chunking():
    profile = VllmV1(max_num_batched_tokens=2048, max_num_seqs=8, enable_chunked_prefill=False)
    with pytest.raises(SettingError, match=r"max_num_batched_tokens=2048: .*nearest: 4096"):
        profile.start(setup())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_num_batched_tokens", 0),
        ("max_num_seqs", -1),
        ("max_num_seqs", 2.5),
        ("long_prefill_token_threshold", -1),
        ("num_speculative_tokens", -1),
        ("num_lookahead_tokens", "2"),
        ("watermark", 1.5),
        ("watermark", float("nan")),
        ("enable_chunked_prefill", "false"),
        ("scheduler_reserve_full_isl", 1),
    ],
)
def test_bad_settings_are_named(setting, value):
    with pytest.raises(SettingError, match=rf"^{setting}={value!r}: "):
        VllmV1(**{setting: value})


def test_bad_cache_and_context_are_named():
    with pytest.raises(SettingError, match="num_gpu_blocks=1"):
        CacheSize(1, 16, True)
    with pytest.raises(SettingError, match="block_size=0"):
        CacheSize(10, 0, True)
    with pytest.raises(SettingError, match="enable_prefix_caching='yes'"):
        CacheSize(10, 16, "yes")
    with pytest.raises(SettingError, match="max_model_len=1"):
        setup(max_len=1)


def test_describe_names_release_and_limits():
    text = VllmV1().describe(setup())
    assert "0.33" in text
    assert "8192" in text
    assert "1024" in text


def request(prompt, cap):
    return Request(0, 0, prompt_tokens=prompt, output_tokens=cap, max_tokens=cap)


def test_requests_beyond_max_model_len_are_refused():
    scheduler = VllmV1().start(setup(max_len=100))
    assert scheduler.reject_reason(request(60, 40)) is None
    reason = scheduler.reject_reason(request(60, 41))
    assert reason == "prompt + max_tokens = 101 > max_model_len 100"


def test_requests_beyond_the_cache_are_refused():
    scheduler = VllmV1().start(setup(max_len=4096, blocks=5))  # 4 usable × 16 slots
    assert scheduler.reject_reason(request(60, 5)) is None  # the last token needs no slot
    reason = scheduler.reject_reason(request(60, 6))
    assert reason == "prompt + max_tokens - 1 = 65 > 64 tokens of KV cache"


@pytest.mark.parametrize(
    ("drafts", "lookahead", "longest"), [(0, 0, 5), (0, 2, 3), (2, 0, 3), (2, 2, 1)]
)
def test_drafts_and_lookahead_need_slots_of_their_own(drafts, lookahead, longest):
    profile = VllmV1(num_speculative_tokens=drafts, num_lookahead_tokens=lookahead)
    setting = setup(max_len=4096, blocks=5)
    assert profile.start(setting).reject_reason(request(60, longest)) is None
    assert profile.start(setting).reject_reason(request(60, longest + 1)) is not None
    scheduler = profile.start(setting)
    scheduler.add(request(60, longest))
    for _ in range(longest):  # and whoever is let in gets through alone
        plan = scheduler.schedule(0)
        assert plan.num_seqs
        scheduler.update(plan, {})
        scheduler.propose({0: drafts})
    assert scheduler.num_running == 0
