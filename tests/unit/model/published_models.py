"""The models of conf/model and their caches, for tests."""

from functools import cache
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import OmegaConf

CONF = Path(__file__).parents[3] / "conf" / "model"


@cache
def model(name):
    return instantiate(OmegaConf.load(CONF / f"{name}.yaml"), _convert_="all")


def kinds(spec, kv_dtype="bf16", tp=1):
    return {(k.kind, k.num_layers): k for k in spec.kv_layers(kv_dtype, tp)}


def per_token(spec, kind, kv_dtype="bf16", tp=1):
    caches = spec.kv_layers(kv_dtype, tp)
    return sum(k.num_layers * k.bytes_per_token for k in caches if k.kind == kind)
