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
        engine: whose kernels run, e.g. "vllm"; a fitted cost holds for one.
    """

    model: ModelSpec
    gpu: GPU
    tp: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    engine: str = "vllm"

    def __post_init__(self) -> None:
        checks.whole("tp", self.tp, at_least=1)
        checks.choice("dtype", self.dtype, tuple(DTYPE_BYTES))
        checks.choice("kv_dtype", self.kv_dtype, KV_DTYPES)
        if not self.model.splits_over(self.tp):
            heads, kv_heads = self.model.num_heads, self.model.num_kv_heads
            raise SettingError(
                "tp", self.tp, f"must split {heads} heads and {kv_heads} KV heads evenly"
            )
