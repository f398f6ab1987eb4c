"""Bytes of quantised weights by hand: one layer, 8 wide, 4 heads of 2, MLP 10, vocabulary 5."""

from fractions import Fraction

import pytest

from servesim.errors import ModelConfigError
from servesim.model.from_hf import published
from servesim.model.quantisation import is_pattern

TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "intermediate_size": 10,
    "vocab_size": 5,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
ATTENTION, MLP = 4 * 8 * 8, 3 * 8 * 10
PLAIN = 2 * (2 * 5 * 8 + 5 * 8)  # two tables and five norms in bf16
NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}
INT4 = {"num_bits": 4, "type": "int", "group_size": 32}


def weights(quant, dtype="bf16", **keys):
    return published("m", **TINY, quantization_config=quant, **keys).weight_bytes(dtype)


@pytest.mark.parametrize(
    ("quant", "per_weight"),
    [
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "fbgemm_fp8"}, 1),
        ({"quant_method": "fp8", "weight_block_size": [4, 4]}, 1 + Fraction(4, 16)),
        ({"quant_method": "awq", "bits": 4, "group_size": 16}, Fraction(16 * 4 + 16 + 4, 16 * 8)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, Fraction(64 * 4 + 32, 64 * 8)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, Fraction(9, 16)),
        ({"quant_algo": "FP8"}, 1),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": NVFP4}}},
            0.5625,
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": INT4}}}, 0.5625),
    ],
)
def test_every_linear_layer_takes_its_bytes_and_the_rest_16_bits(quant, per_weight):
    pieces = [64] * 4 + [80] * 3  # each matrix's bytes are rounded up
    expected = 2 * sum(-(-n * Fraction(per_weight) // 1) for n in pieces)
    assert weights(quant) == expected + PLAIN


def test_what_is_not_quantised_follows_the_16_bit_type_only():
    quant = {"quant_method": "fp8"}
    assert weights(quant, "fp32") == 2 * (ATTENTION + MLP) + 2 * PLAIN
    assert weights(quant, "fp8") == weights(quant, "fp16") == weights(quant, "bf16")


@pytest.mark.parametrize(
    ("ignored", "saved"),
    [
        ([], 0),
        (["lm_head"], 0),  # never quantised unless it says so
        (["model.layers.1.self_attn.q_proj"], 64),
        (["model.layers.1"], ATTENTION + MLP),
        (["model.language_model.layers.0.mlp*"], MLP),
        (["language_model.model.layers.0.*"], ATTENTION + MLP),
        (["*self_attn*"], 2 * ATTENTION),
        (["re:.*mlp\\.(gate|up)_proj.*"], 2 * 2 * 80),
        (["re:model\\.layers\\.1\\..*"], ATTENTION + MLP),
        (["down_proj"], 2 * 80),
        (["model.layers.10", "visual"], 0),
    ],
)
def test_ignored_modules_stay_in_16_bits(ignored, saved):
    quant = {"quant_method": "fp8", "ignored_layers": ignored}
    assert weights(quant) - weights({"quant_method": "fp8"}) == saved


def test_a_head_is_quantised_where_it_is_said():
    quant = {"quant_method": "gptq", "bits": 8, "group_size": -1}
    assert weights(quant) - weights(quant | {"lm_head": True}) == 5 * 8


def test_mixed_precision_quantises_the_listed_layers():
    layers = {
        "model.layers.0.mlp": {"quant_algo": "FP8"},
        "model.layers.1": {"quant_algo": "NVFP4"},
    }
    quant = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    expected = 2 * ATTENTION + MLP + (ATTENTION + MLP) * Fraction(9, 16) + PLAIN
    assert weights(quant) == expected


def test_mxfp4_is_for_experts_and_routers_stay():
    moe = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    spec = published("m", **TINY | moe, quantization_config={"quant_method": "mxfp4"})
    parts = {part.name: part.rank_bytes for part in spec.weight_parts("bf16")}
    assert parts["experts"] == 2 * 4 * MLP * Fraction(17, 32)
    assert parts["router"] == 2 * 8 * 4 * 2
    assert parts["attention"] == 2 * ATTENTION * 2


@pytest.mark.parametrize(
    ("quant", "match"),
    [
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "two whole numbers above 0"),
        (
            {"quant_method": "awq", "bits": 400},
            r"quantization_config.bits=400: is beyond any model",
        ),
        ({"quant_method": "awq"}, r"quantization_config.bits \(or w_bit\) is missing"),
        ({"quant_algo": "NVFP5"}, "did you mean 'NVFP4'"),
        ({"quant_method": "compressed-tensors"}, "has no group with weights"),
        ({"quant_method": "fp8", "ignored_layers": ["re:(a+)+$"]}, "is not understood"),
        ({"quant_method": "fp8", "ignored_layers": [7]}, "must hold strs only"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 1}}, "must be an object"),
    ],
)
def test_settings_that_cannot_be_are_named(quant, match):
    with pytest.raises(ModelConfigError, match=match):
        weights(quant)


@pytest.mark.parametrize(
    "slow", ["re:(a*)*b", "re:(a|a)+$", "re:(a|a)*$", "re:" + ".*" * 20, "re:(", "re:a{9}"]
)
def test_expressions_that_could_take_forever_are_refused(slow):
    assert not is_pattern(slow)
