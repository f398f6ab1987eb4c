"""Bytes of one element in the number formats of weights and KV caches.

Block formats share a scale among neighbours, so an element takes a fraction of a byte more:
nvfp4 one fp8 scale per 16 values, mxfp4 one 8-bit exponent per 32 (OCP Microscaling 1.0), q8_0
one fp16 scale per 32 (llama.cpp ggml-common.h). All are exact binary fractions.
"""

from fractions import Fraction

from servesim.errors import SettingError

DTYPE_BYTES: dict[str, float] = {
    "fp32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "int4": 0.5,
    "fp4": 0.5,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "q8_0": 1.0625,
}
FP8_DS_MLA = "fp8_ds_mla"  # fp8 latent, its scales and a bf16 rotary part in a slot (FlashMLA)
KV_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "nvfp4", "q8_0", FP8_DS_MLA)
# vLLM's names of the same (config/cache.py)
_KV_SPELLINGS = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float": "fp32",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}


def kv_dtype_of(asked: str | None, dtype: str) -> str:
    """The format of a KV cache.

    Args:
        asked: one of `KV_DTYPES` or vLLM's name for it; None is `dtype`, or bf16 where no cache
            has that format; "auto" is vLLM's rule: that of the activations, so never a narrower
            one.
        dtype: of the weights.
    """
    if asked is None:
        return dtype if dtype in KV_DTYPES else "bf16"
    if asked == "auto":
        return dtype if dtype in ("fp32", "bf16", "fp16") else "bf16"
    return _KV_SPELLINGS.get(asked, asked)


def bytes_of(elements: int, per_element: float | Fraction) -> int:
    """Whole bytes that `elements` take, rounded up; exact also beyond 2**53."""
    size = elements * Fraction(per_element)
    return -(-size.numerator // size.denominator)


def kv_bytes_of(elements: int, kv_dtype: str) -> int:
    """Whole bytes of `elements` of a KV cache.

    Raises:
        SettingError: `kv_dtype` is the slot format of a latent.
    """
    if kv_dtype == FP8_DS_MLA:
        raise SettingError("kv_dtype", kv_dtype, "is for models with a latent cache (MLA)")
    return bytes_of(elements, DTYPE_BYTES[kv_dtype])
