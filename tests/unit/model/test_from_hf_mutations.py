"""Published configurations with keys deleted, retyped or scaled: a line of error or a sane size.

`python -m pytest tests/unit/model/test_from_hf_mutations.py -m long -s` runs 10 000 of them.
"""

import json
import os
import random
import time
from copy import deepcopy
from math import isfinite
from pathlib import Path

import pytest
import yaml

from servesim.errors import ModelConfigError
from servesim.model import from_hf
from servesim.model.from_hf import published

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("SERVESIM_DATA") or ROOT.parent / "shared" / "data") / "hf_configs"
VALUES = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    10**6,
    10**9,
    10**40,
    -(10**18),
    0.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "128",
    "full_attention",
    "re:(a+)+$",
    [],
    [0],
    [1, "a", None],
    [[]],
    {},
    {"a": 1},
    {"weights": None},
)
OTHER_KEYS = (
    "head_dim",
    "kv_lora_rank",
    "num_experts",
    "sliding_window",
    "layer_types",
    "index_topk",
    "text_config",
    "vision_config",
    "audio_config",
    "quantization_config",
    "num_nextn_predict_layers",
    "num_kv_shared_layers",
    "first_k_dense_replace",
    "is_encoder_decoder",
)
KINDS = (*sorted(from_hf._table()[0]), "novel")


def yaml_models():
    for path in sorted((ROOT / "conf" / "model").glob("*.yaml")):
        keys = yaml.safe_load(path.read_text())
        if keys.pop("_target_").endswith("published"):
            del keys["name"]
            yield keys


def real_configs():
    for path in sorted(DATA.glob("*_config.json")):
        if "hf_quant" not in path.name:
            yield json.loads(path.read_text())


def objects_in(value):
    """Every non-empty object and list inside, the outermost included."""
    if isinstance(value, dict | list) and value:
        yield value
        for inner in value.values() if isinstance(value, dict) else value[:8]:
            yield from objects_in(inner)


def mutate(rng, config):
    """Between one and three changes anywhere in it."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        where = rng.choice(list(objects_in(config)) or [config])
        places = list(where) if isinstance(where, dict) else range(len(where))
        if not places or rng.random() < 0.08:
            if isinstance(where, dict):
                where[rng.choice(OTHER_KEYS)] = deepcopy(rng.choice(VALUES))
            continue
        key = rng.choice(places)
        change = rng.random()
        if change < 0.2:
            del where[key]
        elif change < 0.3 and isinstance(where, dict):
            where["model_type"] = rng.choice(KINDS)
        elif change < 0.6 and isinstance(where[key], int | float):
            where[key] = where[key] * rng.choice((-1, 0, 2, 3, 10, 1000, 10**9)) + rng.choice(
                (0, 1)
            )
        elif change < 0.7 and isinstance(where[key], list | str):
            where[key] = where[key] * rng.choice((0, 2, 50))
        else:
            where[key] = deepcopy(rng.choice(VALUES))


def is_one_line(message):
    assert "\n" not in message
    assert len(message) < 2000
    return True


def check(config):
    """Whether it was accepted; what is accepted has sane sizes."""
    try:
        spec = published("mutant", **config)
    except ModelConfigError as error:
        return not is_one_line(str(error))
    assert 0 < spec.active_parameters <= spec.num_parameters <= from_hf.MOST_PARAMETERS
    one = spec.weight_bytes("bf16")
    assert 0 < one <= 4 * from_hf.MOST_PARAMETERS
    for tp in (2, 8):
        assert 0 < spec.weight_bytes("bf16", tp) <= one
    for kv_dtype in ("bf16", "fp8"):
        for kind in spec.kv_layers(kv_dtype, 2):
            assert 0 < kind.num_layers <= spec.num_layers
            assert 0 <= kind.bytes_per_token <= from_hf.MOST_KV_BYTES
            assert 0 <= kind.state_bytes <= from_hf.MOST_STATE_BYTES
            assert kind.window_tokens is None or kind.window_tokens > 0
    assert isfinite(spec.expected_active_experts(100))
    assert spec.linear_parameters_per_layer >= 0
    assert isinstance(spec.splits_over(4), bool)
    return True


def run(configs, number, seed):
    """How many of `number` mutants were accepted, and the longest time that one took."""
    rng = random.Random(seed)
    configs, accepted, slowest = list(configs), 0, 0.0
    for _ in range(number):
        config = deepcopy(rng.choice(configs))
        mutate(rng, config)
        config.pop("name", None)
        started = time.process_time()
        accepted += check({str(key): value for key, value in config.items()})
        slowest = max(slowest, time.process_time() - started)
    return accepted, slowest


def test_mutants_are_refused_or_sane():
    accepted, _ = run(yaml_models(), 500, seed=1)
    assert 100 < accepted < 450


@pytest.mark.long
def test_ten_thousand_mutants_of_published_files():
    configs = [*yaml_models(), *real_configs()]
    accepted, slowest = run(configs, 10_000, seed=2)
    print(f"\n{len(configs)} files, 10 000 mutants, {accepted} accepted, slowest {slowest:.2f} s")
    assert 2_000 < accepted < 9_000
    assert slowest < 20
