"""How engines divide GPU memory: by hand, and for every profile of conf/scheduler."""

from pathlib import Path

import pytest
from hydra.utils import instantiate

from servesim.app.compose import composed
from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.kv.profile_run import activation_bytes
from servesim.model.spec import ModelSpec
from servesim.scheduler.hf.profile import HFContinuousBatching
from servesim.scheduler.orca import Orca
from servesim.scheduler.sarathi import Sarathi
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.sizing import Ask
from servesim.scheduler.sizing_rules import engine_memory
from servesim.scheduler.trtllm.profile import TensorRTLLM
from servesim.scheduler.vllm.sizing import captured_sizes
from servesim.scheduler.vllm.v0 import VllmV0
from servesim.scheduler.vllm.v1 import VllmV1

CONF = Path(__file__).parents[3] / "conf"
PROFILES = sorted(path.stem for path in (CONF / "scheduler").glob("*.yaml"))
LLAMA_8B = ModelSpec("llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
GIB = 2**30


def ask(memory_gib=80.0, tp=1, max_model_len=8192, **more):
    gpu = GPU("gpu", memory_gib, 1000.0, {"bf16": 100.0}, 100.0)
    deployment = Deployment(LLAMA_8B, gpu, tp)
    return Ask(deployment, max_model_len, LLAMA_8B.weight_bytes("bf16", tp), **more)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_says_how_it_divides_memory(name):
    profile = instantiate(composed([f"scheduler={name}"]).scheduler, _convert_="all")
    memory = engine_memory(profile, ask())
    assert 0.5 < memory.utilization <= 1
    terms = memory.non_torch_bytes, memory.activation_bytes, memory.graph_bytes
    assert all(term >= 0 for term in terms)
    assert 0.3 * GIB < memory.non_torch_bytes + memory.activation_bytes < 40 * GIB
    assert memory.max_num_batched_tokens > 0
    assert memory.max_num_seqs > 0
    fixed = engine_memory(profile, ask(gpu_memory_utilization=0.5)).utilization
    assert fixed == 0.5 or name in ("hf", "trtllm")  # of what the weights leave


@pytest.mark.parametrize(
    ("release", "utilization", "graphs", "equal_below", "states", "log"),
    [
        ("0.8.5", 0.9, False, 1.0, 1, "vllm-0.8"),
        ("0.11", 0.9, False, 1.0, 1, "vllm-0.11"),
        ("0.15", 0.9, False, 1.25, 2, "vllm-0.11"),
        ("0.20", 0.92, True, 1.5, 2, "vllm-0.11"),
        ("0.33", 0.92, True, 1.5, 2, "vllm-0.33"),
    ],
)
def test_releases_of_vllm(release, utilization, graphs, equal_below, states, log):
    memory = engine_memory(VllmV1(release=release), ask())
    assert memory.utilization == utilization
    assert (memory.graph_bytes > 0) == graphs
    assert (memory.rules.equal_below, memory.rules.states_per_request) == (equal_below, states)
    assert memory.log == log
    assert memory.rules.null_block
    assert memory.rules.start_up_knows == (release == "0.33")


def test_vllm_profiles_its_batch_limits():
    memory = engine_memory(VllmV1(max_num_batched_tokens=4096, max_num_seqs=64), ask())
    assert memory.activation_bytes == activation_bytes(LLAMA_8B, "bf16", 1, 4096, 64)
    assert memory.rules.in_flight_tokens == 4096
    later = VllmV1(max_num_batched_tokens=4096, max_num_seqs=64, async_scheduling=True)
    assert engine_memory(later, ask()).rules.in_flight_tokens == 8192
    drafts = engine_memory(later, ask(num_speculative_tokens=3)).rules
    assert drafts.states_per_request == 2 + 3


@pytest.mark.parametrize(
    ("memory_gib", "tokens", "seqs", "decode_tokens", "sizes"),
    [
        (80, 8192, 1024, 1, 51),  # 1, 2, 4, 31 of 8 to 248, 17 of 256 to 512
        (180, 16384, 1024, 1, 83),  # to 1 024
        (80, 8192, 4, 1, 4),  # to 8
        (80, 8192, 4, 4, 7),  # to 32
        (80, 2, 1, 1, 2),
    ],
)
def test_captured_sizes(memory_gib, tokens, seqs, decode_tokens, sizes):
    deployment = ask(memory_gib).deployment
    assert captured_sizes(deployment, tokens, seqs, decode_tokens) == sizes


def test_v0_profiles_the_whole_context_until_it_chunks():
    short = engine_memory(VllmV0(), ask(max_model_len=29_000))
    long = engine_memory(VllmV0(), ask(max_model_len=35_000))
    assert (short.max_num_batched_tokens, long.max_num_batched_tokens) == (29_000, 2048)
    given = VllmV0(max_num_batched_tokens=40_000)
    assert engine_memory(given, ask(max_model_len=35_000)).max_num_batched_tokens == 40_000
    assert not short.rules.null_block


def test_profiles_built_on_v0_have_their_own_limits():
    sarathi = engine_memory(Sarathi(chunk_size=512, max_num_seqs=128), ask())
    assert (sarathi.max_num_batched_tokens, sarathi.max_num_seqs) == (512, 128)
    orca = engine_memory(Orca(max_num_seqs=32), ask(max_model_len=100_000))
    assert (orca.max_num_batched_tokens, orca.max_num_seqs) == (100_000, 32)
    assert (orca.log, orca.graph_bytes) == ("", 0)


def test_sglang_on_a_small_card():
    # 24 GiB: chunks of 4 096 tokens, decode graphs to 48, prefill graphs at 54 sizes to 4 096
    memory = engine_memory(SGLang(), ask(24.0))
    sizes = 8 + 14 + 8 + 8 + 12
    reserved = 512 + 1.5 * 4096 + 1024 / 8 + 2 * 48 + 8 * sizes
    assert memory.utilization == round(1 - reserved / (24 * 1024), 3)
    assert memory.non_torch_bytes == int(0.5 * GIB * memory.utilization)
    assert memory.rules.block_size == 1


def test_sglang_keeps_at_least_ten_gib_of_a_large_card():
    # 80 GiB: 512 + 12 288 + 1 024 / 8 + 2 · 256 + graphs are more than 10 GiB
    memory = engine_memory(SGLang(chunked_prefill_size=2048), ask(80.0))
    assert memory.utilization == round(1 - 10 / 80, 3)


def test_transformers_takes_a_share_of_what_weights_leave():
    profile = HFContinuousBatching(max_batch_tokens=1000, max_requests_per_batch=10)
    memory = engine_memory(profile, ask(80.0))
    weights, context = LLAMA_8B.weight_bytes("bf16"), GIB // 2
    available = int((80 * GIB - weights - context) * 0.9)
    usable = int(80 * GIB * memory.utilization)
    assert usable - weights - context == pytest.approx(available, abs=1)
    per_batch_token = 2 * (4096 + 4096 + 2 * 2048) + 2 * (8 * 4 + 32 * 4 + 16)
    buffers = 1000 * per_batch_token + 10 * (2 * 4096 + 4 * 128_256)
    cache = available - memory.activation_bytes
    # a token of the cache brings the keys and values of one layer that are read back, and indices
    assert cache * (131_072 + 4096 + 16) / 131_072 == pytest.approx(available - buffers, rel=1e-6)


def test_tensorrt_llm_takes_a_fraction_of_what_a_trial_run_leaves():
    # 80 GiB − 15 GiB of weights − 0.5 GiB outside torch − the trial run's activations, × 0.9
    asked = ask()
    memory = engine_memory(TensorRTLLM(max_num_tokens=4096, max_batch_size=64), asked)
    activations = activation_bytes(LLAMA_8B, "bf16", 1, 4096, 64)
    assert memory.activation_bytes == activations
    taken = asked.weight_bytes + GIB // 2 + activations
    cache = memory.utilization * 80 * GIB - taken
    assert cache == pytest.approx(0.9 * (80 * GIB - taken))
    half = engine_memory(TensorRTLLM(), ask(gpu_memory_utilization=0.5))
    taken = asked.weight_bytes + GIB // 2 + half.activation_bytes
    assert half.utilization * 80 * GIB - taken == pytest.approx(0.5 * (80 * GIB - taken))
    assert (half.rules.block_size, half.rules.null_block) == (32, False)
    # 128 rows of logits at most: the largest batch of a captured graph
    assert half.activation_bytes == activation_bytes(LLAMA_8B, "bf16", 1, 8192, 128)
