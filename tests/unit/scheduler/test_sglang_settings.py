"""SGLang's settings: defaults by GPU, refusals, what the front end answers."""

import pytest
from serving import ANY_GPU, request
from sglang_stepping import sglang

from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.sglang.profile import SGLang


def setup(gib=80.0, tokens=400_000, max_len=8192, order=None, caching=True):
    gpu = GPU("any", gib, 1.0, {}, 1.0)
    return EngineSetup(gpu, CacheSize(tokens // 16 + 1, 16, caching), max_len, order or Fcfs())


@pytest.mark.parametrize(
    ("gib", "size"),
    [(15.0, 2048), (24.0, 4096), (47.0, 4096), (80.0, 8192), (140.0, 8192), (180.0, 16384)],
)
def test_the_chunk_follows_the_gpus_memory(gib, size):
    assert SGLang().limits(setup(gib)).prefill.chunked_prefill_size == size


def test_chunks_can_be_sized_and_switched_off():
    assert SGLang(chunked_prefill_size=512).limits(setup()).prefill.chunked_prefill_size == 512
    assert SGLang(chunked_prefill_size=-1).limits(setup()).prefill.chunked_prefill_size is None


@pytest.mark.parametrize(
    ("given", "tokens", "max_len", "limit"),
    [
        (None, 400_000, 8192, 4096),  # 400 000 / 8192 · 512 = 25 000, at most 4096
        (None, 40_000, 131_072, 2048),  # 156, at least 2048
        (None, 1600, 800, 800),  # no more than half of the slots
        (100, 400_000, 8192, 100),
        (5000, 1600, 800, 800),
    ],
)
def test_running_requests(given, tokens, max_len, limit):
    limits = SGLang(max_running_requests=given).limits(setup(tokens=tokens, max_len=max_len))
    assert limits.max_running_requests == limit


def test_the_pool_is_cut_into_pages_of_the_profiles_own():
    cache = CacheSize(101, 16, enable_prefix_caching=True)
    engine = EngineSetup(ANY_GPU, cache, 500, Fcfs())
    scheduler = SGLang(page_size=64).start(engine)
    assert (scheduler.kv_blocks, scheduler.block_size) == (25, 64)  # 1600 tokens
    assert SGLang().start(engine).kv_blocks == 1600


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_size": 0}, "page_size=0: must be 1 or more"),
        ({"chunked_prefill_size": 100, "page_size": 64}, "multiple of page_size=64; nearest: 64"),
        ({"chunked_prefill_size": 0}, "chunked_prefill_size=0"),
        ({"schedule_conservativeness": -1}, "schedule_conservativeness=-1"),
        ({"enable_mixed_chunk": 1}, "enable_mixed_chunk=1: must be true or false"),
        ({"max_running_requests": 0}, "max_running_requests=0"),
        (
            {"enable_priority_scheduling": True, "schedule_policy": "lpm"},
            "nearest: schedule_policy=fcfs",
        ),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(SettingError, match=message):
        SGLang(**settings)


@pytest.mark.parametrize("setting", ["schedule_policy", "radix_eviction_policy"])
def test_unknown_names(setting):
    with pytest.raises(UnknownChoiceError, match=f"unknown {setting} 'lr'"):
        SGLang(**{setting: "lr"})


@pytest.mark.parametrize(
    "settings", [{"schedule_policy": "lpm"}, {"enable_priority_scheduling": True}]
)
def test_two_rankings_at_once_are_refused(settings):
    with pytest.raises(SettingError, match=r"Priority ranks already; nearest: policies/order=fcfs"):
        SGLang(**settings).start(setup(order=Priority()))
    SGLang().start(setup(order=Priority()))


def test_a_page_that_does_not_fit_is_refused():
    with pytest.raises(SettingError, match=r"page_size=4096: two pages do not fit"):
        SGLang(page_size=4096).limits(setup(tokens=4096))


def test_what_it_says_of_itself():
    line = SGLang(schedule_policy="lpm").describe(setup())
    assert "0.5.23 without overlap; schedule_policy lpm, chunked_prefill_size 8192" in line
    assert "radix cache (lru), 400000 pages of page_size 1" in line
    line = SGLang(schedule_policy="lpm", chunked_prefill_size=-1).describe(setup(caching=False))
    assert "schedule_policy fcfs, chunked_prefill_size off" in line
    assert "no radix cache" in line
    assert "0.5.23 overlapped" in SGLang(disable_overlap_schedule=False).describe(setup())
    assert "overlap; queue order Priority, chunked" in SGLang().describe(setup(order=Priority()))
    line = SGLang(enable_priority_scheduling=True, schedule_policy="lof").describe(setup())
    assert "overlap; priority, then schedule_policy lof, chunked" in line


class TestFrontEnd:
    def test_longer_than_the_context(self):
        reason = sglang(max_len=64).reject_reason(request(0, 0, 40, 25))
        assert reason == "prompt + max_tokens = 65 > max_model_len 64"

    def test_a_prompt_must_leave_room(self):
        assert sglang(max_len=64).reject_reason(request(0, 0, 57, 2)) is None
        reason = sglang(max_len=64).reject_reason(request(0, 0, 58, 2))
        assert reason == "prompt = 58 > 57 tokens, the longest that is taken"

    def test_longer_than_the_pool(self):
        engine = sglang(tokens=50, max_len=64)
        assert engine.reject_reason(request(0, 0, 30, 18)) is None
        reason = engine.reject_reason(request(0, 0, 30, 19))
        assert reason == "prompt + max_tokens = 49 > 48 tokens of KV cache"

    def test_two_tokens_of_the_context_stay_unused(self):
        engine = sglang(tokens=200, max_len=64)
        engine.add(request(0, 0, 40, 24))
        tokens = 0
        while engine.num_running or engine.num_waiting:
            tokens += len(engine.update(engine.schedule(0), {}).emitted)
        assert tokens == 22
