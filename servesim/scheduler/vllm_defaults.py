"""Batch limits that vLLM's API server chooses when none are given.

Source: vLLM 0.33.0 `engine/arg_utils.py` (usage context OPENAI_API_SERVER).
"""

from servesim.hardware.gpu import GPU


def server_defaults(gpu: GPU) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by memory class; the A100 counts as a small one."""
    if gpu.memory_gib >= 160:
        return 16384, 1024
    if gpu.memory_gib >= 70 and "a100" not in gpu.name.lower():
        return 8192, 1024
    return 2048, 256
