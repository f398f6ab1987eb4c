"""Every model and GPU loads, and the sizes that follow are the published ones."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.model.spec import DTYPE_BYTES, ModelSpec
from servesim.scheduler.vllm.defaults import server_defaults
from servesim.units import gib

CONF = Path(__file__).parents[2] / "conf"
MODELS = sorted((CONF / "model").glob("*.yaml"))
GPUS = sorted((CONF / "hardware").glob("*.yaml"))

# name: parameters (without multi-token prediction), bytes of KV per token in bf16
PUBLISHED = {
    "llama3.1_8b": (8_030_261_248, 131_072),
    "llama3.1_70b": (70_553_706_496, 327_680),
    "qwen2.5_7b": (7_615_616_512, 57_344),
    "qwen3_0.6b": (596_049_920, 114_688),
    "qwen3_32b": (32_762_123_264, 262_144),
    "llama3.1_405b": (405_853_388_800, 516_096),
    "llama4_scout": (107_769_861_120, 196_608),
    "llama4_maverick": (400_711_848_960, 196_608),
    "mixtral_8x7b": (46_702_792_704, 131_072),
    "mixtral_8x22b": (140_620_634_112, 229_376),
    "qwen3_1.7b": (1_720_574_976, 114_688),
    "qwen3_8b": (8_190_735_360, 147_456),
    "qwen3_32b_fp8": (32_762_123_264, 262_144),
    "qwen3_30b_a3b": (30_532_122_624, 98_304),
    "qwen3_235b_a22b": (235_093_634_560, 192_512),
    "qwen3_235b_a22b_fp8": (235_093_634_560, 192_512),
    "qwen3_coder_480b_a35b": (480_154_875_392, 253_952),
    "qwen3_vl_8b": (8_767_123_696, 147_456),
    "qwen3.5_35b_a3b": (35_107_181_936, 20_480),
    "qwen3.5_397b_a17b": (396_802_360_816, 30_720),
    "gemma4_26b_a4b": (25_805_936_176, 225_280),
    "deepseek_v3": (671_026_419_200, 70_272),
    "deepseek_r1": (671_026_419_200, 70_272),
    "deepseek_v3.2": (671_877_944_064, 78_324),
    "deepseek_v4_flash": (284_332_175_698, 50_261),
    "kimi_k2": (1_026_408_232_448, 70_272),
    "kimi_k3": (2_779_929_148_000, 27_648),
    "glm5": (743_911_218_432, 100_152),
    "glm5.1_fp8": (743_911_218_432, 100_152),
    "gpt_oss_20b": (20_914_757_184, 49_152),
    "gpt_oss_120b": (116_829_156_672, 73_728),
    "nemotron_h_56b": (56_324_350_464, 40_960),
    "nemotron3_nano_30b_a3b": (31_577_940_288, 6_144),
    "nemotron3_super_120b_a12b_fp8": (120_668_707_840, 8_192),
    "nemotron_super_49b": (49_867_145_216, 200_704),
    "minimax_m2.5": (228_689_764_864, 253_952),
    "mimo_7b": (7_622_619_136, 147_456),
    "mimo_v2_flash": (308_778_780_864, 222_720),
    "llama2_7b": (6_738_415_616, 524_288),
    "llama2_70b": (68_976_648_192, 327_680),
    "mistral_7b_v0.1": (7_241_732_096, 131_072),
    "mistral_nemo_12b": (12_247_782_400, 163_840),
    "mistral_small_3.1_24b": (24_011_361_280, 163_840),
    "gemma2_9b": (9_241_705_984, 344_064),
    "gemma3_27b": (27_432_406_640, 507_904),
    "gemma4_31b": (30_697_345_280, 901_120),
    "phi3_mini_4k": (3_821_079_552, 393_216),
    "phi4_14b": (14_659_507_200, 204_800),
    "gpt2": (124_439_808, 36_864),
    "opt_30b": (29_974_540_288, 1_376_256),
    "bloom_176b": (176_247_271_424, 4_014_080),
    "falcon_7b": (6_921_720_704, 8_192),
    "falcon_40b": (41_303_293_952, 122_880),
    "starcoder2_7b": (7_173_923_840, 65_536),
    "glm4.5_355b_a32b": (352_797_829_024, 376_832),
    "qwen1.5_moe_a2.7b": (14_315_784_192, 196_608),
    "nemotron_nano_9b_v2": (8_888_227_328, 16_384),
    "qwen3_next_80b_a3b": (79_674_391_296, 24_576),
    "qwen3.6_27b": (27_356_728_560, 65_536),
    "kimi_linear_48b_a3b": (49_122_681_728, 8_064),
    "deepseek_v2_lite": (15_706_484_224, 31_104),
    "minimax_m1_456b": (456_089_655_296, 40_960),
    "codellama_34b": (33_743_970_304, 196_608),
    "llama3_8b": (8_030_261_248, 131_072),
    "llama3_70b": (70_553_706_496, 327_680),
    "qwen3_14b": (14_768_307_200, 163_840),
    "qwen2_7b": (7_615_616_512, 57_344),
    "qwen2_72b": (72_706_203_648, 327_680),
    "qwen2.5_14b": (14_770_033_664, 196_608),
    "qwen2.5_72b": (72_706_203_648, 327_680),
    "qwen1.5_7b": (7_721_324_544, 524_288),
    "llama_7b": (6_738_415_616, 524_288),
    "opt_6.7b": (6_658_473_984, 524_288),
    "bloom_7b1": (7_069_016_064, 491_520),
}


def make(path):
    return instantiate(OmegaConf.load(path), _convert_="all")


def model(name):
    return make(CONF / "model" / f"{name}.yaml")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_has_its_published_sizes(path):
    spec = make(path)
    assert isinstance(spec, ModelSpec)
    assert path.read_text().startswith(f"# {spec.name}, published config.json")
    assert path.stem in PUBLISHED, "a new model needs its published sizes in this test"
    assert (spec.num_parameters, spec.kv_bytes_per_token("bf16")) == PUBLISHED[path.stem]
    assert Deployment(spec, make(GPUS[0])).tp == 1


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_sizes_of_a_model_are_plausible(path):
    spec = make(path)
    assert 0 < spec.active_parameters <= spec.num_parameters
    assert spec.num_parameters / 2 < spec.weight_bytes("bf16") <= 2 * spec.num_parameters
    parts = spec.weight_parts("bf16", tp=2)
    assert all(part.parameters > 0 and part.rank_bytes > 0 for part in parts)
    assert sum(part.parameters for part in parts if part.loaded) == spec.num_parameters
    for kind in spec.kv_layers("fp8"):
        assert (kind.kind == "recurrent") == (kind.bytes_per_token == 0) == (kind.state_bytes > 0)
        assert 0 < kind.num_layers <= spec.num_layers
        assert kind.window_tokens is None or kind.window_tokens < spec.max_position_embeddings
    assert spec.kv_bytes_per_token("fp8") <= spec.kv_bytes_per_token("bf16")
    assert spec.kv_bytes_per_token("bf16", tp=8) <= spec.kv_bytes_per_token("bf16")


@pytest.mark.parametrize(
    ("name", "weights_gib"),
    [
        ("llama3.1_8b", 14.958),
        ("llama3.1_70b", 131.42),
        ("qwen3_0.6b", 1.110),
        ("qwen3_32b", 61.02),
    ],
)
def test_weights_in_gib(name, weights_gib):
    assert gib(model(name).weight_bytes("bf16")) == pytest.approx(weights_gib, abs=0.005)


def test_untied_embeddings_would_show():
    """Qwen3-0.6B has one vocabulary matrix; a second would make 1.40 GiB of 1.11."""
    spec = model("qwen3_0.6b")
    assert gib(spec.weight_bytes("bf16") + 2 * spec.embedding_parameters) == pytest.approx(
        1.40, abs=0.005
    )


def test_kv_of_whole_contexts():
    # vllm#22291: 3072 tokens of Qwen2.5-7B; HF blog#2345: 128 000 tokens of Llama-3.1-8B and 70B
    tokens = [("qwen2.5_7b", 3072, 0.164), ("llama3.1_8b", 128_000, 15.62)]
    tokens.append(("llama3.1_70b", 128_000, 39.06))
    for name, count, size_gib in tokens:
        kv = count * model(name).kv_bytes_per_token("bf16")
        assert gib(kv) == pytest.approx(size_gib, abs=0.006)


# cut-down compute (export rules, a gaming card's half rate), and little bandwidth for its compute
UNUSUAL_RATIO = {"h20": 37, "h100_64gb_hbm2": 618, "rtx_3090": 76, "tpu_v6e": 560}


@pytest.mark.parametrize("path", GPUS, ids=lambda path: path.stem)
def test_a_gpu_is_plausible_and_says_where_its_figures_are_from(path):
    gpu = make(path)
    assert isinstance(gpu, GPU)
    assert path.read_text().startswith("# ")
    assert set(gpu.dense_tflops) <= set(DTYPE_BYTES)
    assert gpu.tflops("bf16") == gpu.tflops("fp16")
    if "fp8" in gpu.dense_tflops:  # tensor cores: half the bits, twice the rate
        assert gpu.tflops("fp8") == pytest.approx(2 * gpu.tflops("bf16"), rel=0.02)
    # FLOP per byte at which a matrix multiplication turns compute-bound
    ratio = gpu.tflops("bf16") * 1000 / gpu.memory_bandwidth_gb_s
    if path.stem in UNUSUAL_RATIO:
        assert round(ratio) == UNUSUAL_RATIO[path.stem]
    else:
        assert 100 < ratio < 450
    (source,) = [line for line in path.read_text().splitlines() if "memory_source" in line]
    assert source.startswith(f"memory_source: {gpu.memory_source} # ")


def test_gpus_fall_into_vllms_classes():
    limits = {path.stem: server_defaults(make(path)) for path in GPUS}
    assert limits["h100_sxm"] == limits["h200_sxm"] == (8192, 1024)
    assert limits["a100_80gb_sxm"] == limits["rtx_4090"] == limits["l40s"] == (2048, 256)
