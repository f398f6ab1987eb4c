"""Published names of models and GPUs, and the YAML of conf/ that stands for each."""

import re
from functools import cache
from pathlib import Path

import yaml
from hydra.utils import instantiate

from servesim.app.paths import conf_dir
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec

# parts of a name that change neither the architecture nor its sizes
_VARIANT = re.compile(
    r"-(?:instruct|chat|hf|base|it|bf16|fp8|fp4|nvfp4|dynamic|2407|2503|2507)(?=-|$)"
)
_HYPHEN = re.compile(r"(?<=[a-z])-(?=\d)")  # Qwen-2.5 is Qwen2.5
_MODEL_ALIASES = {  # architecture and sizes of another one: published config.json of both
    "llama3.3-70b": "llama3.1-70b",
}
_QUANTISED = re.compile(r"_(?:fp8|fp4|nvfp4)$")
_GPU_ALIASES = {
    "h100": "h100_sxm",
    "h100-80gb": "h100_sxm",
    "h100_sxm": "h100_sxm",
    "h100_pcie": "h100_pcie",
    "h100-64gb": "h100_64gb_hbm2",
    "h200": "h200_sxm",
    "h200_sxm": "h200_sxm",
    "b200": "b200_sxm",
    "b200_sxm": "b200_sxm",
    "gb200": "gb200",
    "a100": "a100_80gb_sxm",
    "a100-80gb": "a100_80gb_sxm",
    "a100_sxm": "a100_80gb_sxm",
    "a100-40gb": "a100_40gb_sxm",
    "a40": "a40",
    "l40s": "l40s",
    "a6000": "rtx_a6000",
    "rtxa6000": "rtx_a6000",
    "rtx3090": "rtx_3090",
    "rtx4090": "rtx_4090",
    "rtxpro6000": "rtx_pro_6000",
    "rtx_pro_6000_server": "rtx_pro_6000",
    "a100_pcie": "a100_80gb_pcie",
    "gh200": "gh200_96gb",
    "mi250": "mi250",
    "mi300x": "mi300x",
}


def model_stem(published: str) -> str | None:
    """The YAML of conf/model with this architecture and these sizes, or None.

    Fine-tuned variants stand for their base; a checkpoint in another number format stands for the
    same model, the format being the case's `dtype`.
    """
    key = _model_key(published)
    return _models().get(_MODEL_ALIASES.get(key, key))


def hardware_stem(published: str) -> str | None:
    """The YAML of conf/hardware of this GPU, or None."""
    key = published.lower().removeprefix("nvidia ").removeprefix("amd ").removesuffix(" gpu")
    stem = _GPU_ALIASES.get(key.strip(" ?"))
    return stem if stem and (conf_dir() / "hardware" / f"{stem}.yaml").is_file() else None


def engine_known(name: str) -> bool:
    """Whether conf/scheduler has a profile of this engine."""
    folder = conf_dir() / "scheduler"
    return any(path.stem == name or path.stem.startswith(f"{name}_") for path in _yamls(folder))


@cache
def load_model(stem: str) -> ModelSpec:
    """The model of conf/model/`stem`.yaml."""
    model: ModelSpec = instantiate(_content(conf_dir() / "model" / f"{stem}.yaml"), _convert_="all")
    return model


@cache
def load_gpu(stem: str) -> GPU:
    """The GPU of conf/hardware/`stem`.yaml."""
    gpu: GPU = instantiate(_content(conf_dir() / "hardware" / f"{stem}.yaml"), _convert_="all")
    return gpu


def slug(*parts: object) -> str:
    """Parts of a name as one word that is safe in a file name."""
    words = (re.sub(r"[^a-z0-9.-]+", "_", str(part).lower()).strip("_") for part in parts)
    return "_".join(word for word in words if word)


def _model_key(published: str) -> str:
    name = published.rsplit("/", 1)[-1].lower().removeprefix("meta-")
    return _HYPHEN.sub("", _VARIANT.sub("", name))


@cache
def _models() -> dict[str, str]:
    stems: dict[str, str] = {}
    paths = _yamls(conf_dir() / "model")
    for path in sorted(paths, key=lambda p: (bool(_QUANTISED.search(p.stem)), p.stem)):
        stems.setdefault(_model_key(str(_content(path)["name"])), path.stem)
    return stems


def _yamls(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _content(path: Path) -> dict[str, object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, object] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    return content
