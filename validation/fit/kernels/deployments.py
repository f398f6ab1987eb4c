"""Deployments by the names that sources and people use for models and GPUs."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import instantiate

from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec

CONF = Path(__file__).resolve().parents[3] / "conf"
# aiconfigurator's GPU → ours, where it is called otherwise
HARDWARE = {"a100_sxm": "a100_80gb_sxm", "rtx_pro_6000_server": "rtx_pro_6000"}
# formats of a weight that are one dtype to us, apart in the tables
DTYPES = {"fp8_block": "fp8"}


def hardware_of(gpu: str) -> str:
    """Name of the YAML of aiconfigurator's `gpu`."""
    return HARDWARE.get(gpu, gpu)


def deployment(gpu: str, model: str, tp: int, dtype: str, kv_dtype: str, engine: str) -> Deployment:
    """A deployment; `model` is a published name or a YAML's, `dtype` may be a table's.

    Raises:
        UnknownChoiceError: there is no such GPU or model here.
    """
    weights = DTYPES.get(dtype, dtype)
    return Deployment(model_of(model), card_of(gpu), tp, weights, kv_dtype, engine)


def card_of(gpu: str) -> GPU:
    """The GPU of aiconfigurator's name or a YAML's, or UnknownChoiceError."""
    hardware = CONF / "hardware" / f"{hardware_of(gpu)}.yaml"
    if not hardware.is_file():
        known = sorted(path.stem for path in hardware.parent.glob("*.yaml"))
        raise UnknownChoiceError("gpu", gpu, known)
    card: GPU = instantiate(yaml.safe_load(hardware.read_text()), _convert_="all")
    return card


@cache
def model_of(name: str) -> ModelSpec:
    """The model of that published or YAML name, or UnknownChoiceError."""
    known: dict[str, Path] = {}
    for published, path in _models():
        known[published] = known[path.stem] = path
    if name not in known:
        raise UnknownChoiceError("model", name, sorted(known))
    spec: Any = instantiate(yaml.safe_load(known[name].read_text()), _convert_="all")
    return spec  # type: ignore[no-any-return]


@cache
def _models() -> tuple[tuple[str, Path], ...]:
    paths = sorted((CONF / "model").glob("*.yaml"))
    return tuple((str(yaml.safe_load(path.read_text())["name"]), path) for path in paths)
