"""Parameters of 63 published configurations against what their authors state.

Totals marked "all" are those of the checkpoint's tensors (safetensors metadata on Hugging Face),
multi-token prediction and vision tower included; "main" is without multi-token prediction, "text"
without a vision tower either. Where a model card rounds, so does the tolerance.
"""

import os
from pathlib import Path

import pytest

from servesim.model.from_hf import from_hf

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("SERVESIM_DATA") or ROOT.parent / "shared" / "data") / "hf_configs"
CONFIGS = sorted(p for p in DATA.glob("*_config.json") if "hf_quant" not in p.name)

# model: (total, what it counts, allowed share)
TOTALS = {
    "Qwen/Qwen3-0.6B": (596_049_920, "all", 0),
    "Qwen/Qwen3-1.7B": (1_720_574_976, "all", 0),  # tied: the file's second copy not counted
    "Qwen/Qwen3-8B": (8_190_735_360, "all", 0),
    "Qwen/Qwen3-32B": (32_762_123_264, "all", 0),
    "Qwen/Qwen3-32B-FP8": (32_762_123_264, "all", 0),
    "Qwen/Qwen3-32B-FP8-Static-PerTensor": (32_762_123_264, "all", 0),
    "Qwen/Qwen3-30B-A3B": (30_532_122_624, "all", 0),
    "Qwen/Qwen3-30B-A3B-FP8": (30_532_122_624, "all", 0),
    "Qwen/Qwen3-235B-A22B": (235_093_634_560, "all", 0),
    "Qwen/Qwen3-235B-A22B-FP8": (235_093_634_560, "all", 0),
    "nvidia/Qwen3-235B-A22B-NVFP4": (235_093_634_560, "all", 0),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480_154_875_392, "all", 0),
    "Qwen/Qwen3-VL-2B-Instruct": (2_127_532_032, "all", 0),
    "Qwen/Qwen3-VL-4B-Instruct": (4_437_815_808, "all", 0),
    "Qwen/Qwen3-VL-8B-Instruct": (8_767_123_696, "all", 0),
    "Qwen/Qwen3-VL-30B-A3B-Instruct": (31.1e9, "all", 0.01),
    "Qwen/Qwen3-VL-235B-A22B-Instruct": (235.7e9, "all", 0.01),
    "Qwen/Qwen3.5-35B-A3B": (35_951_822_704, "all", 0),
    "Qwen/Qwen3.5-122B-A10B": (125_086_497_008, "all", 0),
    "nvidia/Qwen3.5-122B-A10B-NVFP4": (125_086_497_008, "all", 0),
    "Qwen/Qwen3.5-397B-A17B": (403_397_928_944, "all", 0),
    "nvidia/Qwen3.5-397B-A17B-NVFP4": (403_397_928_944, "all", 0),
    "meta-llama/Meta-Llama-3.1-8B": (8_030_261_248, "all", 0),
    "meta-llama/Meta-Llama-3.1-70B": (70_553_706_496, "all", 0),
    "nvidia/Llama-3.1-70B-Instruct-FP8": (70_553_706_496, "all", 0),
    "meta-llama/Meta-Llama-3.1-405B": (405_853_388_800, "all", 0),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (109e9, "all", 0.02),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400e9, "all", 0.02),
    "mistralai/Mixtral-8x7B-v0.1": (46_702_792_704, "all", 0),
    "mistralai/Mixtral-8x22B-v0.1": (140_620_634_112, "all", 0),
    "XiaomiMiMo/MiMo-7B-Base": (7_833_409_536, "all", 0),
    "XiaomiMiMo/MiMo-V2-Flash": (309e9, "main", 0.01),
    "deepseek-ai/DeepSeek-V3": (671e9, "main", 0.001),
    "deepseek-ai/DeepSeek-R1": (671e9, "main", 0.001),
    "deepseek-ai/DeepSeek-V3.2": (671e9, "main", 0.01),
    "nvidia/DeepSeek-V3.1-NVFP4": (671e9, "main", 0.001),
    "nvidia/DeepSeek-V3.2-NVFP4": (671e9, "main", 0.01),
    "deepseek-ai/DeepSeek-V4-Flash": (284e9, "main", 0.01),
    "nvidia/DeepSeek-V4-Flash-NVFP4": (284e9, "main", 0.01),
    "sgl-project/DeepSeek-V4-Flash-FP8": (284e9, "main", 0.01),
    "moonshotai/Kimi-K2-Instruct": (1.026e12, "main", 0.01),
    "moonshotai/Kimi-K2.5": (1.026e12, "text", 0.01),
    "nvidia/Kimi-K2.5-NVFP4": (1.026e12, "text", 0.01),
    "nvidia/Kimi-K2.6-NVFP4": (1.026e12, "text", 0.01),
    "zai-org/GLM-5": (753_864_139_008, "all", 0),
    "zai-org/GLM-5.1": (753_864_139_008, "all", 0),
    "zai-org/GLM-5-FP8": (753_864_139_008, "all", 0),
    "zai-org/GLM-5.1-FP8": (753_864_139_008, "all", 0),
    "nvidia/GLM-5-NVFP4": (753_864_139_008, "all", 0),
    "nvidia/GLM-5.1-NVFP4": (753_864_139_008, "all", 0),
    "MiniMaxAI/MiniMax-M2.5": (228.7e9, "main", 0.001),
    "nvidia/MiniMax-M2.5-NVFP4": (228.7e9, "main", 0.001),
    "google/gemma-4-26B-A4B": (25.2e9, "text", 0.01),
    "nvidia/Gemma-4-26B-A4B-NVFP4": (25.2e9, "text", 0.01),
    "openai/gpt-oss-20b": (20.91e9, "main", 0.001),
    "openai/gpt-oss-120b": (116.83e9, "main", 0.001),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31_577_937_344, "all", 1e-6),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": (31_577_937_344, "all", 1e-6),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6e9, "main", 0.001),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": (120.6e9, "main", 0.001),
    "nvidia/Nemotron-H-56B-Base-8K": (56e9, "all", 0.01),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": (49_867_145_216, "all", 0),
}
NOT_STATED = ("moonshotai/Kimi-K3",)

# model: (active parameters in billions as stated, tables left out of that, half a unit of its last
# digit). Mixtral counts both tables, gpt-oss only the head, GLM-5 and MiniMax neither
ACTIVE = {
    "Qwen/Qwen3-30B-A3B": (3.3, (), 0.06),
    "Qwen/Qwen3-235B-A22B": (22, (), 0.5),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (35, (), 0.5),
    "Qwen/Qwen3.5-35B-A3B": (3, (), 0.5),
    "Qwen/Qwen3.5-122B-A10B": (10, (), 0.5),
    "Qwen/Qwen3.5-397B-A17B": (17, (), 0.5),
    "mistralai/Mixtral-8x7B-v0.1": (12.88, (), 0.005),
    "mistralai/Mixtral-8x22B-v0.1": (39.1, (), 0.06),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (17, (), 0.5),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (17, (), 0.5),
    "XiaomiMiMo/MiMo-V2-Flash": (15, (), 0.5),
    "deepseek-ai/DeepSeek-V3": (36.7, ("embedding",), 0.1),
    "deepseek-ai/DeepSeek-V4-Flash": (13, ("embedding",), 0.5),
    "moonshotai/Kimi-K2-Instruct": (32, ("embedding",), 0.5),
    "zai-org/GLM-5": (40, ("embedding", "head"), 0.5),
    "MiniMaxAI/MiniMax-M2.5": (10, ("embedding", "head"), 0.5),
    "google/gemma-4-26B-A4B": (3.8, (), 0.05),
    "openai/gpt-oss-20b": (3.61, ("embedding",), 0.005),
    "openai/gpt-oss-120b": (5.13, ("embedding",), 0.005),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (3.6, (), 0.05),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (12.7, (), 0.08),
}

# GiB of weights at tp=1, as engines and checkpoints show them
WEIGHTS = {
    "openai/gpt-oss-20b": (12.8, 0.05),  # model card: checkpoint size
    "openai/gpt-oss-120b": (60.8, 0.05),
    "nvidia/Llama-3.1-70B-Instruct-FP8": (67.72, 0.06),  # vllm PR#12569, with channel scales
    "Qwen/Qwen3-32B": (61.03, 0.02),
    "mistralai/Mixtral-8x7B-v0.1": (86.99, 0.01),
}

needs_data = pytest.mark.skipif(not CONFIGS, reason=f"needs the configurations of {DATA}")


def name_of(path):
    return path.name.removesuffix("_config.json").replace("--", "/", 1)


def spec_of(name):
    return from_hf(DATA / f"{name.replace('/', '--')}_config.json")


def total(spec, what):
    parts = {part.name: part.parameters for part in spec.weight_parts("bf16")}
    if what == "all":
        return sum(parts.values())
    return spec.num_parameters - (parts.get("vision tower", 0) if what == "text" else 0)


@needs_data
def test_every_configuration_is_covered():
    assert {name_of(path) for path in CONFIGS} == {*TOTALS, *NOT_STATED}


@needs_data
@pytest.mark.parametrize("name", TOTALS)
def test_total_parameters_are_the_published_ones(name):
    published, what, share = TOTALS[name]
    assert total(spec_of(name), what) == pytest.approx(published, rel=share, abs=0)


@needs_data
@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_published_ones(name):
    published, without, half_unit = ACTIVE[name]
    spec = spec_of(name)
    active = spec.active_parameters - len(without) * spec.embedding_parameters
    assert active / 1e9 == pytest.approx(published, abs=half_unit)


@needs_data
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_are_as_large_as_measured(name):
    gib, margin = WEIGHTS[name]
    assert spec_of(name).weight_bytes("bf16") / 2**30 == pytest.approx(gib, abs=margin)


@needs_data
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_no_published_configuration_needs_a_guess(path):
    notes = from_hf(path).notes
    assert not [note for note in notes if "not known" in note or "not understood" in note]


@needs_data
def test_parts_of_gpt_oss_are_those_of_its_model_card():
    """120b: MLP 114.71 B, attention 0.96 B, embedding and head 1.16 B."""
    parts = {
        p.name: p.parameters / 1e9 for p in spec_of("openai/gpt-oss-120b").weight_parts("bf16")
    }
    assert parts["experts"] + parts["router"] == pytest.approx(114.71, abs=0.01)
    assert parts["attention"] == pytest.approx(0.96, abs=0.005)
    assert parts["embedding"] + parts["head"] == pytest.approx(1.16, abs=0.005)


@needs_data
def test_multi_token_prediction_of_deepseek_is_counted_apart():
    """README_WEIGHTS of DeepSeek-V3: 671 B, and 11.5 B of MTP beside shared tables."""
    parts = {p.name: p for p in spec_of("deepseek-ai/DeepSeek-V3").weight_parts("bf16")}
    assert parts["mtp"].parameters / 1e9 == pytest.approx(11.5, rel=0.01)
    assert not parts["mtp"].loaded
