"""Token counts that an engine captures CUDA graphs for, by its defaults."""

from servesim.deployment import Deployment

LARGEST = 512
# SGLang 0.5: largest decode batch by GPU memory, for tp below 4 (512 from 4 ranks on)
SGLANG_LARGEST, SGLANG_BIG_TP = 256, 4
SGLANG_BIG_GIB = 160
# TensorRT-LLM 1.x with `cuda_graph_config.enable_padding`; without, as is its default, 33 to 63
# sequences would run without a graph, which no one who serves leaves so
TRTLLM_LARGEST = 128


def sizes(deployment: Deployment) -> tuple[int, ...]:
    """By engine: vLLM 1, 2, 4, then by 8, from 256 on by 16; SGLang by 4 up to 16; TensorRT-LLM."""
    if deployment.engine == "trtllm":
        return (1, 2, 4, *range(8, TRTLLM_LARGEST + 1, 8))
    if deployment.engine != "sglang":
        return (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST + 1, 16))
    big = deployment.tp >= SGLANG_BIG_TP or deployment.gpu.memory_gib >= SGLANG_BIG_GIB
    largest = LARGEST if big else SGLANG_LARGEST
    every = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, LARGEST + 1, 16))
    return tuple(size for size in every if size <= largest)
