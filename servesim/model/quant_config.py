"""Reads `quantization_config` (or ModelOpt's hf_quant_config.json) into a Quantisation.

The formats' layouts: fp8 with fp32 scales per block (DeepSeek-V3), AWQ and GPTQ with a 16-bit
scale and a zero point per group, compressed-tensors and ModelOpt with groups of their own.
"""

from collections.abc import Mapping
from fractions import Fraction

from servesim.errors import nearest
from servesim.model.config import Config
from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.quantisation import Quantisation, is_pattern

_SCALE_BITS = 16  # of a group of integers
_FP32_BITS = 32
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float": "fp32"}
_EXPERTS = ("*mlp.experts*",)
_METHODS = (
    "fp8",
    "fbgemm_fp8",
    "awq",
    "gptq",
    "gptq_marlin",
    "compressed-tensors",
    "modelopt",
    "modelopt_fp4",
    "mxfp4",
    "bitsandbytes",
)
_NVFP4, _MXFP4 = Fraction(DTYPE_BYTES["nvfp4"]), Fraction(DTYPE_BYTES["mxfp4"])
# ModelOpt's names: bytes of a weight and its scales, at the group size that each fixes
_ALGORITHMS = {
    "FP8": Fraction(1),
    "FP8_PER_CHANNEL_PER_TOKEN": Fraction(1),
    "FP8_PB_WO": 1 + Fraction(4, 128 * 128),
    "NVFP4": _NVFP4,
    "NVFP4_AWQ": _NVFP4,
    "MXFP4": _MXFP4,
    "MXFP8": 1 + Fraction(1, 32),
    "W4A16_AWQ": Fraction(4 + Fraction(_SCALE_BITS, 128), 8),
    "W4A8_AWQ": Fraction(4 + Fraction(_SCALE_BITS, 128), 8),
    "W8A8_SQ": Fraction(1),
    "INT8": Fraction(1),
}


def weight_dtype(config: Config) -> str:
    """The 16- or 32-bit type of what is not quantised; bf16 where none is stated."""
    key = "dtype" if config.has("dtype") else "torch_dtype"
    name = config.text(key, "bfloat16").removeprefix("torch.")
    return _DTYPES.get(name, "bf16")


def read(config: Config, quant: Config) -> Quantisation:
    """The format of one checkpoint.

    Raises:
        ModelConfigError: the method is unknown or its settings cannot be so.
    """
    algorithm = quant.text("quant_algo")
    method = quant.text("quant_method") or ("modelopt" if algorithm else "")
    if method not in _METHODS:
        raise quant.error("quant_method", f"is not known{nearest(method, _METHODS)}")
    per_weight = _per_weight(quant, method, algorithm)
    others = _others(config, quant)
    ignored: list[str] = []
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"):
        if quant.has(key):
            ignored += _patterns(quant, key)
    if quant.has("llm_int8_skip_modules"):
        ignored += _patterns(quant, "llm_int8_skip_modules")
    head = quant.flag("lm_head", default=False)
    name = (algorithm or method).lower()
    return Quantisation(name, per_weight, weight_dtype(config), tuple(ignored), others, head)


def _patterns(quant: Config, key: str) -> list[str]:
    patterns: list[str] = quant.list_of(key, str)
    for pattern in patterns:
        if not is_pattern(pattern):
            raise quant.error(key, f"holds an expression that is not understood: {pattern:.60}")
    return patterns


def _per_weight(quant: Config, method: str, algorithm: str) -> Fraction | None:
    if method == "mxfp4":
        return None
    if method in ("fp8", "fbgemm_fp8"):
        return _fp8(quant)
    if method in ("awq", "gptq", "gptq_marlin"):
        return _integers(quant)
    if method == "bitsandbytes":
        return _bitsandbytes(quant)
    if method == "compressed-tensors":
        return _first_group(quant)
    return _algorithm(quant, algorithm)


def _fp8(quant: Config) -> Fraction:
    if not quant.has("weight_block_size"):
        return Fraction(1)
    block = quant.list_of("weight_block_size", int)
    if len(block) != 2 or min(block) < 1:
        raise quant.error("weight_block_size", "must be two whole numbers above 0")
    return 1 + Fraction(4, block[0] * block[1])


def _integers(quant: Config) -> Fraction:
    """Packed integers with a 16-bit scale and a zero point of their own width per group."""
    bits = quant.whole("bits", "w_bit", at_most=16)
    group = quant.whole("group_size", "q_group_size", default=128, at_least=-1)
    scales = Fraction(_SCALE_BITS + bits, group) if group > 0 else Fraction(0)
    return (bits + scales) / 8


def _bitsandbytes(quant: Config) -> Fraction:
    """NF4: an fp32 scale per 64 weights, itself in 8 bits where quantised twice (QLoRA)."""
    if not quant.flag("load_in_4bit", "_load_in_4bit", default=False):
        return Fraction(1)
    if quant.flag("bnb_4bit_use_double_quant", default=False):
        return (4 + Fraction(8, 64) + Fraction(_FP32_BITS, 64 * 256)) / 8
    return (4 + Fraction(_FP32_BITS, 64)) / 8


def _algorithm(quant: Config, name: str) -> Fraction | None:
    if name == "MIXED_PRECISION":
        return None
    if name not in _ALGORITHMS:
        raise quant.error("quant_algo", f"is not known{nearest(name, _ALGORITHMS)}")
    return _ALGORITHMS[name]


def _first_group(quant: Config) -> Fraction:
    """compressed-tensors: the weights of its (first) group; one group is the rule."""
    groups = quant.inner("config_groups")
    names = sorted(groups.keys) if groups else []
    group = groups.inner(names[0]) if groups and names else None
    weights = group.inner("weights") if group else None
    if weights is None:
        raise quant.error("config_groups", "has no group with weights")
    bits = weights.whole("num_bits", at_most=16)
    size = weights.maybe("group_size", at_least=-1)
    if bits == 4 and weights.text("type") == "float":
        return _MXFP4 if size == 32 else _NVFP4
    if weights.has("block_structure") and isinstance(weights.keys["block_structure"], list):
        block = weights.list_of("block_structure", int)
        if len(block) == 2 and min(block) > 0:
            return (bits + Fraction(_FP32_BITS, block[0] * block[1])) / 8
    return (bits + (Fraction(_SCALE_BITS, size) if size and size > 0 else Fraction(0))) / 8


def _others(config: Config, quant: Config) -> tuple[tuple[tuple[str, ...], Fraction], ...]:
    """Modules with a format of their own: ModelOpt's `quantized_layers`, fp4 experts."""
    found: dict[Fraction, list[str]] = {}
    layers = quant.inner("quantized_layers")
    for name in layers.keys if layers else ():
        setting = (
            layers.inner(str(name)) if layers and isinstance(layers.keys[name], Mapping) else None
        )
        if setting is None:
            raise quant.error("quantized_layers", f"{name!r:.40} must be an object")
        size = _algorithm(setting, setting.text("quant_algo"))
        if size is not None:
            found.setdefault(size, []).append(str(name))
    if not found and (
        quant.text("quant_method") == "mxfp4" or config.text("expert_dtype") == "fp4"
    ):
        return ((_EXPERTS, _MXFP4),)
    return tuple((tuple(names), size) for size, names in found.items())
