"""Which of our GPU and model YAMLs a source's folder names stand for."""

from dataclasses import dataclass
from pathlib import Path

import yaml
from hydra.utils import instantiate

from servesim.deployment import Deployment
from servesim.errors import UnknownChoiceError
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec

CONF = Path(__file__).resolve().parents[2] / "conf"


@dataclass(frozen=True)
class Target:
    """A profiled GPU.

    Attributes:
        hardware: name of its YAML in conf/hardware.
        multiprocessors: SMs that the card has enabled (NVIDIA's architecture papers).
    """

    hardware: str
    multiprocessors: int


TARGETS = {
    "RTXPRO6000": Target("rtx_pro_6000", 188),
    "RTX4090": Target("rtx_4090", 128),
}


def deployment(gpu: str, model: str, tp: int) -> Deployment:
    """The deployment that a bf16 profile of `model` on `gpu` was taken from.

    Raises:
        UnknownChoiceError: this GPU or model has no YAML here.
    """
    if gpu not in TARGETS:
        raise UnknownChoiceError("gpu", gpu, TARGETS)
    models = {}
    for path in sorted((CONF / "model").glob("*.yaml")):
        fields = yaml.safe_load(path.read_text())
        if str(fields.pop("_target_")).endswith(".ModelSpec"):
            models[fields["name"].split("/")[-1]] = fields
    if model not in models:
        raise UnknownChoiceError("model", model, models)
    fields = yaml.safe_load((CONF / "hardware" / f"{TARGETS[gpu].hardware}.yaml").read_text())
    del fields["_target_"]
    return Deployment(ModelSpec(**models[model]), GPU(**fields), tp=tp)


def named_deployment(hardware: str, model: str, tp: int) -> Deployment:
    """A bf16 deployment of a model and GPU that have YAMLs here, the GPU by its file's name.

    Raises:
        UnknownChoiceError: no model YAML has this name.
    """
    trees = [yaml.safe_load(path.read_text()) for path in sorted((CONF / "model").glob("*.yaml"))]
    models = {str(tree["name"]): tree for tree in trees if "name" in tree}
    if model not in models:
        raise UnknownChoiceError("model", model, models)
    card = yaml.safe_load((CONF / "hardware" / f"{hardware}.yaml").read_text())
    return Deployment(instantiate(models[model]), instantiate(card), tp=tp)
