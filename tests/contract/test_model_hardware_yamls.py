"""Every model and GPU loads, and the sizes that follow are the published ones."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.model.spec import DTYPE_BYTES, ModelSpec
from servesim.scheduler.vllm_defaults import server_defaults
from servesim.units import gib

CONF = Path(__file__).parents[2] / "conf"
MODELS = sorted((CONF / "model").glob("*.yaml"))
GPUS = sorted((CONF / "hardware").glob("*.yaml"))

# name: parameters, bytes of K and V per token in bf16
PUBLISHED = {
    "llama3.1_8b": (8_030_261_248, 131_072),
    "llama3.1_70b": (70_553_706_496, 327_680),
    "qwen2.5_7b": (7_615_616_512, 57_344),
    "qwen3_0.6b": (596_049_920, 114_688),
    "qwen3_32b": (32_762_123_264, 262_144),
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


@pytest.mark.parametrize("path", GPUS, ids=lambda path: path.stem)
def test_a_gpu_is_plausible_and_says_where_its_figures_are_from(path):
    gpu = make(path)
    assert isinstance(gpu, GPU)
    assert path.read_text().startswith("# ")
    assert set(gpu.dense_tflops) <= set(DTYPE_BYTES)
    assert gpu.tflops("bf16") == gpu.tflops("fp16")
    if "fp8" in gpu.dense_tflops:  # tensor cores: half the bits, twice the rate
        assert gpu.tflops("fp8") == pytest.approx(2 * gpu.tflops("bf16"), rel=0.02)
    # FLOP per byte at which a matrix multiplication turns compute-bound: 100 to 450 since Ampere
    assert 100 < gpu.tflops("bf16") * 1000 / gpu.memory_bandwidth_gb_s < 450


def test_gpus_fall_into_vllms_classes():
    limits = {path.stem: server_defaults(make(path)) for path in GPUS}
    assert limits["h100_sxm"] == limits["h200_sxm"] == (8192, 1024)
    assert limits["a100_80gb_sxm"] == limits["rtx_4090"] == limits["l40s"] == (2048, 256)
