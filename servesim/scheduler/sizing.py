"""What each engine profile makes of GPU memory: its share, what it keeps free, its start-up log."""

import re
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from servesim.deployment import Deployment
from servesim.kv.groups import CacheRules
from servesim.kv.profile_run import activation_bytes, graph_bytes, non_torch_bytes
from servesim.policies.order.fcfs import Fcfs
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.hf import HFContinuousBatching
from servesim.scheduler.sarathi import Sarathi
from servesim.scheduler.sglang import SGLang
from servesim.scheduler.vllm_defaults import server_defaults
from servesim.scheduler.vllm_releases import profile_of
from servesim.scheduler.vllm_v0 import CHUNKED_TOKENS, VllmV0
from servesim.scheduler.vllm_v1 import VllmV1
from servesim.units import gib_to_bytes

V0_CHUNKS_ABOVE = 32_768  # max_model_len from which V0 chunks prefill by itself (engine/arg_utils.py)
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Ask:
    """What a profile is asked about.

    Attributes:
        deployment: what is served on what.
        max_model_len: longest context, tokens.
        weight_bytes: of one rank.
        block_size: tokens per block, where the profile has no page size of its own.
        enable_prefix_caching: whether full blocks are shared by content.
        num_speculative_tokens: drafts per verification; null takes the profile's.
        gpu_memory_utilization: share of memory; null takes the engine's default.
    """

    deployment: Deployment
    max_model_len: int
    weight_bytes: int
    block_size: int = 16
    enable_prefix_caching: bool = True
    num_speculative_tokens: int | None = None
    gpu_memory_utilization: float | None = None


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """How an engine divides GPU memory.

    Attributes:
        engine: name and release, for people.
        log: style of its start-up log: "vllm-v0", "vllm-0.8", "vllm-0.11", "vllm-0.33", "sglang"
            or "".
        utilization: share of the memory that weights, cache and the terms below share.
        non_torch_bytes: kept for what torch does not allocate.
        activation_bytes: kept for activations, and for all other buffers of the engine.
        graph_bytes: kept for CUDA graphs.
        max_num_batched_tokens: tokens per step.
        max_num_seqs: requests at a time.
        rules: of the cache's layout.
        notes: what of this is an assumption or not modelled.
    """

    engine: str
    log: str
    utilization: float
    non_torch_bytes: int
    activation_bytes: int
    graph_bytes: int
    max_num_batched_tokens: int
    max_num_seqs: int
    rules: CacheRules
    notes: tuple[str, ...] = ()


@singledispatch
def engine_memory(profile: Any, ask: Ask) -> EngineMemory:
    """How the profile's engine divides memory; of a profile without a rule, as vLLM V0 does."""
    tokens, seqs = server_defaults(ask.deployment.gpu)
    tokens = getattr(profile, "max_num_batched_tokens", None) or max(tokens, ask.max_model_len)
    seqs = getattr(profile, "max_num_seqs", None) or seqs
    return _reserving(f"{type(profile).__name__}, memory as in vLLM V0", "", tokens, seqs, ask)


@engine_memory.register
def _sarathi(profile: Sarathi, ask: Ask) -> EngineMemory:
    tokens, seqs = profile.chunk_size, profile.max_num_seqs
    return _reserving("Sarathi-Serve, memory as in vLLM V0", "", tokens, seqs, ask)


@engine_memory.register
def _vllm_v0(profile: VllmV0, ask: Ask) -> EngineMemory:
    tokens = profile.max_tokens(_setup(ask))
    if ask.max_model_len > V0_CHUNKS_ABOVE and profile.max_num_batched_tokens is None:
        tokens = CHUNKED_TOKENS
    return _reserving("vLLM 0.6.6 (V0)", "vllm-v0", tokens, profile.max_num_seqs, ask)


def _reserving(engine: str, log: str, tokens: int, seqs: int, ask: Ask) -> EngineMemory:
    """vLLM V0 (worker/worker.py, determine_num_available_blocks): no CUDA graphs, no null block."""
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


@engine_memory.register
def _vllm_v1(profile: VllmV1, ask: Ask) -> EngineMemory:
    """gpu_worker.py `determine_available_memory`; CUDA graphs count since 0.20 (0.16 here)."""
    deployment, release = ask.deployment, profile_of(profile.release)
    tokens, seqs = profile.limits(_setup(ask))
    drafts = ask.num_speculative_tokens
    drafts = profile.num_speculative_tokens if drafts is None else drafts
    newer = release.profile in ("0.20", "0.33")
    newest = release.profile == "0.33"
    depth = 2 if profile.async_scheduling and newest else 1
    rules = CacheRules(
        ask.block_size,
        ask.enable_prefix_caching,
        in_flight_tokens=depth * tokens,
        num_speculative_tokens=drafts,
        equal_below={"0.11": 1.0, "0.15": 1.25}.get(release.profile, 1.5),
        latent_tokens=128 if newest else 0,
        aligned_states=1 if release.profile == "0.11" else 2,
        null_block=newest,
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
        graph_bytes(model, 2 * captured_sizes(deployment, tokens, seqs, 1 + drafts)) if newer else 0,
        tokens,
        seqs,
        rules,
    )


def captured_sizes(deployment: Deployment, tokens: int, seqs: int, decode_tokens: int) -> int:
    """Batch sizes for which vLLM captures a graph (config/vllm.py): 1, 2, 4, 8 … 248, 256 …

    Steps of 8 below 256 and of 16 from there, up to the largest decode batch twice over, 512
    (1,024 on GPUs of 160 GiB) or the step's tokens, whichever is least.
    """
    limit = 1024 if deployment.gpu.memory_gib >= 160 else 512
    largest = min(2 * seqs * decode_tokens, limit, tokens)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return sum(size <= largest for size in sizes)


# GPU memory below so many MiB: largest captured decode batch with less than four ranks, and with
# more (SGLang 0.5.23, arg_groups/memory_hook.py)
_SGLANG_GRAPHS = (
    (20 * 1024, 8, 8),
    (35 * 1024, 48, 160),
    (60 * 1024, 32, 160),
    (160 * 1024, 256, 512),
)
_SGLANG_PREFILL_SIZES = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
    *range(4608, 65_537, 512),
)


@engine_memory.register
def _sglang(profile: SGLang, ask: Ask) -> EngineMemory:
    """arg_groups/memory_hook.py (`mem_fraction_static`), mem_cache/kv_cache_configurator.py.

    The cache gets what is free after loading, less the share of what was free before that is not
    static: activations and graphs live in that share and are not subtracted again.
    """
    deployment = ask.deployment
    model, tp = deployment.model, deployment.tp
    memory_mib = gib_to_bytes(deployment.gpu.memory_gib) / _MIB
    chunk = profile.limits(_setup(ask)).prefill.chunked_prefill_size
    chunk = chunk or profile.max_prefill_tokens
    below = (row for row in _SGLANG_GRAPHS if memory_mib < row[0])
    _, few, many = next(below, (0, 512, 512))
    latent = any(cache.kind == "latent" for cache in model.kv_layers(deployment.kv_dtype, tp))
    prefill_graphs = 8 * sum(size <= chunk for size in _SGLANG_PREFILL_SIZES)
    reserved = 512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024
    reserved += 2 * (few if tp < 4 else many) + (1536 if latent else prefill_graphs)
    if memory_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    share = ask.gpu_memory_utilization
    share = round((memory_mib - reserved) / memory_mib, 3) if share is None else share
    rules = CacheRules(profile.page_size, ask.enable_prefix_caching, chunk, null_block=False)
    notes = []
    if any(c.window_tokens or c.state_bytes for c in model.kv_layers(deployment.kv_dtype, tp)):
        notes.append("SGLang's own pools for windows and states are not modelled; groups as in vLLM")
    return EngineMemory(
        "SGLang 0.5.23",
        "sglang",
        share,
        int(non_torch_bytes(tp) * share),
        0,
        0,
        chunk,
        profile.max_running_requests or 4096,
        rules,
        tuple(notes),
    )


@engine_memory.register
def _transformers(profile: HFContinuousBatching, ask: Ask) -> EngineMemory:
    """generation/continuous_batching/cache.py of transformers 5.23, with flash attention.

    The share is one of what the weights leave; of it go buffers in proportion to the batch, the
    logits of all requests, and for each token of the cache the keys and values read back.
    """
    deployment = ask.deployment
    model, tp, size = deployment.model, deployment.tp, 2
    share = 0.9 if ask.gpu_memory_utilization is None else ask.gpu_memory_utilization
    memory = gib_to_bytes(deployment.gpu.memory_gib)
    context = non_torch_bytes(tp)
    available = int((memory - ask.weight_bytes - context) * share)
    kv_width = 2 * model.num_kv_heads * model.head_dim
    io = 2 * (8 * 4 + profile.max_blocks_per_request * 4 + 16)
    attention = size * (model.hidden_size + model.num_heads * model.head_dim + 2 * kv_width)
    logits = profile.max_requests_per_batch * (size * model.hidden_size + 4 * model.vocab_size)
    buffers = profile.max_batch_tokens * (attention + io) + logits
    per_token = model.kv_bytes_per_token(deployment.kv_dtype, tp)
    read_back = kv_width * size + 16
    buffers += int((available - buffers) * read_back / (per_token + read_back))
    rules = CacheRules(profile.page_size, ask.enable_prefix_caching, null_block=False)
    rules = replace(rules, in_flight_tokens=profile.max_batch_tokens)
    return EngineMemory(
        "transformers 5.23 continuous batching",
        "",
        (available + ask.weight_bytes + context) / memory,
        context,
        buffers,
        0,
        profile.max_batch_tokens,
        profile.max_requests_per_batch,
        rules,
    )


def _setup(ask: Ask) -> EngineSetup:
    """Enough of a set-up for limits: how large the cache is does not matter to them."""
    cache = CacheSize(1 << 20, 1024, ask.enable_prefix_caching)
    return EngineSetup(ask.deployment.gpu, cache, ask.max_model_len, Fcfs())
