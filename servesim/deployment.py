"""One model on one group of GPUs: what a cost model and the capacity rule are asked about."""

from dataclasses import dataclass

from servesim import checks
from servesim.errors import SettingError
from servesim.hardware.gpu import GPU
from servesim.model.dtypes import DTYPE_BYTES, KV_DTYPES
from servesim.model.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is served and on what.

    Attributes:
        model: the model.
        gpu: each of the `tp` GPUs.
        tp: tensor-parallel ranks.
        dtype: of weights and activations.
        kv_dtype: of the KV cache.
        engine: whose kernels run, e.g. "vllm"; a measured cost holds for one.
        overlaps_host: whether the engine plans a step while the one before it runs, so that the
            host's work is hidden behind the GPU's (by costs that know both apart: kernel tables).
        dp: data-parallel ranks of `tp` GPUs each, over which routed experts are split.
    """

    model: ModelSpec
    gpu: GPU
    tp: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    engine: str = "vllm"
    overlaps_host: bool = False
    dp: int = 1

    def __post_init__(self) -> None:
        checks.whole("tp", self.tp, at_least=1)
        checks.whole("dp", self.dp, at_least=1)
        checks.text("engine", self.engine)
        checks.choice("dtype", self.dtype, tuple(DTYPE_BYTES))
        checks.choice("kv_dtype", self.kv_dtype, KV_DTYPES)
        checks.flag("overlaps_host", self.overlaps_host)
        if not self.model.splits_over(self.tp):
            heads, kv_heads = self.model.num_heads, self.model.num_kv_heads
            raise SettingError(
                "tp", self.tp, f"must split {heads} heads and {kv_heads} KV heads evenly"
            )
