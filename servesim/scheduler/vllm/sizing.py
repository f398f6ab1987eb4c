"""How vLLM divides GPU memory, by release; and the same for engines that are built on its V0."""

import re

from servesim.deployment import Deployment
from servesim.kv.groups import CacheRules
from servesim.kv.profile_run import activation_bytes, graph_bytes, non_torch_bytes
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.scheduler.vllm.releases import profile_of
from servesim.scheduler.vllm.v0 import CHUNKED_TOKENS, VllmV0
from servesim.scheduler.vllm.v1 import VllmV1

V0_CHUNKS_ABOVE = (
    32_768  # max_model_len from which V0 chunks prefill by itself (engine/arg_utils.py)
)


def vllm_v0_memory(profile: VllmV0, ask: Ask) -> EngineMemory:
    """Of vLLM 0.6.6."""
    tokens = profile.max_tokens(ask.setup())
    if ask.max_model_len > V0_CHUNKS_ABOVE and profile.max_num_batched_tokens is None:
        tokens = CHUNKED_TOKENS
    return v0_memory("vLLM 0.6.6 (V0)", "vllm-v0", tokens, profile.max_num_seqs, ask)


def v0_memory(engine: str, log: str, tokens: int, seqs: int, ask: Ask) -> EngineMemory:
    """As V0 does: no CUDA graphs and no null block.

    Source: vLLM 0.6.6 worker/worker.py (`determine_num_available_blocks`).
    """
    deployment = ask.deployment
    rules = CacheRules(
        ask.block_size,
        ask.enable_prefix_caching,
        in_flight_tokens=tokens,
        aligned_states=1,
        null_block=False,
    )
    return EngineMemory(
        engine,
        log,
        0.9 if ask.gpu_memory_utilization is None else ask.gpu_memory_utilization,
        non_torch_bytes(deployment.tp),
        activation_bytes(deployment.model, deployment.dtype, deployment.tp, tokens, seqs),
        0,
        tokens,
        seqs,
        rules,
    )


def vllm_v1_memory(profile: VllmV1, ask: Ask) -> EngineMemory:
    """Of the V1 engine; CUDA graphs count since 0.20.

    Source: v1/worker/gpu_worker.py (`determine_available_memory`).
    """
    deployment, release = ask.deployment, profile_of(profile.release)
    tokens, seqs = profile.limits(ask.setup())
    drafts = ask.num_speculative_tokens
    drafts = profile.num_speculative_tokens if drafts is None else drafts
    number = tuple(map(int, release.profile.split(".")))
    newer, newest = number >= (0, 20), number >= (0, 32)
    depth = 2 if profile.async_scheduling and newest else 1
    rules = CacheRules(
        ask.block_size,
        ask.enable_prefix_caching,
        in_flight_tokens=depth * tokens,
        num_speculative_tokens=drafts,
        equal_below={"0.11": 1.0, "0.15": 1.25}.get(release.profile, 1.5),
        latent_tokens=128 if newest else 0,
        aligned_states=1 if release.profile == "0.11" else 2,
        start_up_knows=newest,
    )
    utilization = ask.gpu_memory_utilization
    log = "vllm-0.33" if newest else "vllm-0.11"
    if [int(number) for number in re.findall(r"\d+", release.asked)[:2]] < [0, 9]:
        log = "vllm-0.8"
    model, tp = deployment.model, deployment.tp
    return EngineMemory(
        f"vLLM {release.describe()}",
        log,
        (0.92 if newer else 0.9) if utilization is None else utilization,
        non_torch_bytes(tp),
        activation_bytes(model, deployment.dtype, tp, tokens, seqs),
        graph_bytes(model, 2 * captured_sizes(deployment, tokens, seqs, 1 + drafts))
        if newer
        else 0,
        tokens,
        seqs,
        rules,
    )


def captured_sizes(deployment: Deployment, tokens: int, seqs: int, decode_tokens: int) -> int:
    """Number of batch sizes for which vLLM captures a graph (config/vllm.py).

    1, 2, 4, then steps of 8 below 256 and of 16 from there, up to the largest decode batch twice
    over, 512 (1,024 on GPUs of 160 GiB) or the step's tokens, whichever is least.
    """
    limit = 1024 if deployment.gpu.memory_gib >= 160 else 512
    largest = min(2 * seqs * decode_tokens, limit, tokens)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return sum(size <= largest for size in sizes)
