"""Batch limits that vLLM's API server chooses when none are given.

Source: vLLM `engine/arg_utils.py` (usage context OPENAI_API_SERVER), 0.11.0 to 0.33.0.
"""

from servesim.hardware.gpu import GPU


def server_defaults(gpu: GPU, knows_160_gib: bool = True) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by memory class; the A100 counts as a small one.

    Args:
        gpu: what the engine runs on.
        knows_160_gib: whether the largest GPUs are a class of their own, as they are since 0.32.
    """
    if knows_160_gib and gpu.memory_gib >= 160:
        return 16384, 1024
    if gpu.memory_gib >= 70 and "a100" not in gpu.name.lower():
        return 8192, 1024
    return 2048, 256
