"""Which engine profile divides memory by which rule."""

from functools import singledispatch
from typing import Any

from servesim.scheduler.hf.profile import HFContinuousBatching
from servesim.scheduler.sarathi import Sarathi
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.sizing import Ask, EngineMemory
from servesim.scheduler.sizing_others import sglang_memory, transformers_memory
from servesim.scheduler.trtllm.profile import TensorRTLLM
from servesim.scheduler.trtllm.sizing import trtllm_memory
from servesim.scheduler.vllm.defaults import server_defaults
from servesim.scheduler.vllm.sizing import v0_memory, vllm_v0_memory, vllm_v1_memory
from servesim.scheduler.vllm.v0 import VllmV0
from servesim.scheduler.vllm.v1 import VllmV1


@singledispatch
def engine_memory(profile: Any, ask: Ask) -> EngineMemory:
    """How the profile's engine divides memory; of a profile without a rule, as vLLM V0 does."""
    tokens, seqs = server_defaults(ask.deployment.gpu)
    tokens = getattr(profile, "max_num_batched_tokens", None) or max(tokens, ask.max_model_len)
    seqs = getattr(profile, "max_num_seqs", None) or seqs
    return v0_memory(f"{type(profile).__name__}, memory as in vLLM V0", "", tokens, seqs, ask)


@engine_memory.register
def _sarathi(profile: Sarathi, ask: Ask) -> EngineMemory:
    tokens, seqs = profile.chunk_size, profile.max_num_seqs
    return v0_memory("Sarathi-Serve, memory as in vLLM V0", "", tokens, seqs, ask)


engine_memory.register(VllmV0, vllm_v0_memory)
engine_memory.register(VllmV1, vllm_v1_memory)
engine_memory.register(SGLang, sglang_memory)
engine_memory.register(HFContinuousBatching, transformers_memory)
engine_memory.register(TensorRTLLM, trtllm_memory)
