"""How SGLang and transformers divide GPU memory."""

from servesim.kv.groups import CacheRules
from servesim.kv.profile_run import non_torch_bytes
from servesim.scheduler.hf.profile import HFContinuousBatching
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.units import gib_to_bytes

_MIB = 2**20
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


def sglang_memory(profile: SGLang, ask: Ask) -> EngineMemory:
    """Of SGLang 0.5.23.

    The cache gets what is free after loading, less the share of what was free before that is not
    static: activations and graphs live in that share and are not subtracted again.
    Source: arg_groups/memory_hook.py (`mem_fraction_static`), mem_cache/kv_cache_configurator.py.
    """
    deployment = ask.deployment
    model, tp = deployment.model, deployment.tp
    memory_mib = gib_to_bytes(deployment.gpu.memory_gib) / _MIB
    chunk = profile.limits(ask.setup()).prefill.chunked_prefill_size
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
        notes.append(
            "SGLang's own pools for windows and states are not modelled; groups as in vLLM"
        )
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


def transformers_memory(profile: HFContinuousBatching, ask: Ask) -> EngineMemory:
    """Of transformers 5.23, with flash attention.

    The share is one of what the weights leave; of it go buffers in proportion to the batch, the
    logits of all requests, and for each token of the cache the keys and values read back.
    Source: generation/continuous_batching/cache.py.
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
    rules = CacheRules(
        profile.page_size, ask.enable_prefix_caching, profile.max_batch_tokens, null_block=False
    )
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
        (f"transformers takes {share:g} of what weights and CUDA context leave of the memory",),
    )
