"""GPUs that were not measured, and differ from one that was in their memory alone.

The A100 of 40 GB has the multiprocessors, clocks and NVLink of the one of 80 GB and HBM2 instead
of HBM2e; GH200 has H100's and a faster HBM3. Weights are read at the data sheet's other rate, and
what a product takes beyond its ideal stays: decodes reach 70 % of the A100's bandwidth because of
what is in flight, not of what the memory can do. (Were it in proportion, the rows of
LLM-Inference-Bench on A100 of 40 GB would leave nothing for the host of vLLM V0, and those on
GH200 0.3 ms more than on H100.) Growth of attention with its context is in proportion. Arithmetic
and links stay. No kernel of these GPUs is in the tables: each YAML says so in `source.scaled`.
"""

from servesim.hardware.gpu import GPU
from validation.fit.kernels import deployments

MEASURED = {"a100_40gb_sxm": "a100_sxm", "gh200_96gb": "h100_sxm"}


def measured_gpu(gpu: str) -> str:
    """The source's folder whose tables stand for `gpu`: its own, or that of its twin."""
    return MEASURED.get(gpu, gpu)


def measured_card(gpu: str) -> GPU:
    """The GPU that those tables are of."""
    return deployments.card_of(measured_gpu(gpu))


def note(own: GPU, measured: GPU) -> dict[str, str]:
    """What a YAML says of tables that were scaled; nothing of a GPU's own."""
    if own.name == measured.name:
        return {}
    rates = f"{measured.memory_bandwidth_gb_s:g} to {own.memory_bandwidth_gb_s:g} GB/s"
    return {
        "scaled": f"measured on {measured.name}; what reads memory taken from {rates}, by the "
        "data sheets; the rest as measured there"
    }


def slowdown(own: GPU, measured: GPU) -> float:
    """How much longer a byte takes."""
    return measured.memory_bandwidth_gb_s / own.memory_bandwidth_gb_s
