"""Token counts that an engine captures CUDA graphs for, by its defaults."""

from servesim.deployment import Deployment

LARGEST = 512
# SGLang 0.5: largest decode batch by GPU memory, for tp below 4 (512 from 4 ranks on)
SGLANG_LARGEST, SGLANG_BIG_TP = 256, 4
SGLANG_BIG_GIB = 160


def sizes(deployment: Deployment) -> tuple[int, ...]:
    """Of vLLM (1, 2, 4, then by 8, from 256 on by 16), or of SGLang (by 4 up to 16)."""
    if deployment.engine != "sglang":
        return (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST + 1, 16))
    big = deployment.tp >= SGLANG_BIG_TP or deployment.gpu.memory_gib >= SGLANG_BIG_GIB
    largest = LARGEST if big else SGLANG_LARGEST
    every = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, LARGEST + 1, 16))
    return tuple(size for size in every if size <= largest)
