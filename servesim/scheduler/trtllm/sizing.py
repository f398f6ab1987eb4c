"""How TensorRT-LLM divides GPU memory."""

from servesim.kv.groups import CacheRules
from servesim.kv.profile_run import activation_bytes, non_torch_bytes
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.scheduler.trtllm.profile import TensorRTLLM
from servesim.units import gib_to_bytes

FREE_FRACTION = 0.9  # kv_cache_config.free_gpu_memory_fraction
_SAMPLED_ROWS = 128  # of the trial run: the largest batch that is captured by default


def trtllm_memory(profile: TensorRTLLM, ask: Ask) -> EngineMemory:
    """Of the PyTorch backend of 1.x.

    Documented: the engine runs `max_num_tokens` tokens before it has its cache, and the cache then
    gets `free_gpu_memory_fraction` of what is free. `gpu_memory_utilization` stands for that
    fraction: a share of what is left, where other engines have one of the whole memory. CUDA graphs
    live in the rest. Assumed: what the trial run takes is what vLLM's would take.
    """
    deployment = ask.deployment
    model, tp = deployment.model, deployment.tp
    share = FREE_FRACTION if ask.gpu_memory_utilization is None else ask.gpu_memory_utilization
    tokens, seqs = profile.max_num_tokens, profile.max_batch_size
    rows = min(seqs, _SAMPLED_ROWS)
    context = non_torch_bytes(tp)
    activations = activation_bytes(model, deployment.dtype, tp, tokens, rows)
    memory = gib_to_bytes(deployment.gpu.memory_gib)
    taken = ask.weight_bytes + context + activations
    depth = 1 if profile.disable_overlap_scheduler else 2
    rules = CacheRules(
        profile.tokens_per_block,
        ask.enable_prefix_caching,
        in_flight_tokens=depth * tokens,
        aligned_states=1,
        null_block=False,
    )
    return EngineMemory(
        "TensorRT-LLM 1.x (PyTorch backend)",
        "",
        (taken + int((memory - taken) * share)) / memory,
        context,
        activations,
        0,
        tokens,
        seqs,
        rules,
        (
            f"TensorRT-LLM takes {share:g} of what weights and a trial run leave of the memory",
            "the layout of windows and states is taken to be vLLM's",
        ),
    )
