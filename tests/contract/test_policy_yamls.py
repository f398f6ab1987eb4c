"""Every YAML of a policy group makes an object that keeps its seam's promise."""

from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from servesim.policies.victim.base import Running
from servesim.records import Request, Waiting

CONF = Path(__file__).parents[2] / "conf" / "policies"
ORDERS = sorted((CONF / "order").glob("*.yaml"))
PREDICTORS = sorted((CONF / "predictor").glob("*.yaml"))
# engine.yaml leaves the choice to the engine and makes no policy
VICTIMS = sorted(set((CONF / "victim").glob("*.yaml")) - {CONF / "victim" / "engine.yaml"})

QUEUE = [
    Waiting(
        rid=i,
        arrived_s=0.5 * i,
        arrival_order=i,
        prompt_tokens=(37 * i) % 50 + 1,
        generated_tokens=(11 * i) % 7,
        predicted_tokens=float((53 * i) % 90 + 1),
        priority=i % 3 - 1,
        tenant="ab"[i % 2],
        requeued=i % 4,
    )
    for i in range(24)
]
BATCH = [
    Running(
        rid=i,
        arrived_s=0.5 * i,
        admission_order=(5 * i) % 24,
        prompt_tokens=(37 * i) % 50 + 1,
        generated_tokens=(11 * i) % 7,
        computed_tokens=(37 * i) % 50 + 1 + (11 * i) % 7,
        kv_blocks=(13 * i) % 9,
        predicted_tokens=float((53 * i) % 90 + 1),
        priority=i % 3 - 1,
        tenant="ab"[i % 2],
        preempted=i % 4 == 0,
    )
    for i in range(24)
]
REQUESTS = [
    Request(rid, rid * 10**9, prompt_tokens=20, output_tokens=1 + 7 * rid, max_tokens=100)
    for rid in range(30)
]


def load(path):
    return OmegaConf.load(path)


def make(path):
    return instantiate(load(path), _convert_="all")


def named(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


def test_there_are_policies_to_check():
    assert len(ORDERS) >= 4
    assert len(PREDICTORS) >= 3
    assert len(VICTIMS) >= 4


@named(ORDERS + PREDICTORS + VICTIMS)
def test_a_policy_is_a_frozen_value_and_its_fields_are_its_yaml(path):
    config, policy = load(path), make(path)
    assert is_dataclass(policy)
    assert policy.__dataclass_params__.frozen
    assert set(config) == {"_target_", *(field.name for field in fields(policy))}
    assert policy == make(path)
    assert hash(policy) == hash(make(path))


@named(ORDERS + PREDICTORS + VICTIMS)
def test_a_yaml_says_what_it_is(path):
    assert path.read_text().startswith("# ")


@named(ORDERS)
def test_keys_are_comparable_tuples_of_numbers(path):
    order = make(path)
    keys = [order.key(waiting, 100.0) for waiting in QUEUE]
    for key in keys:
        assert isinstance(key, tuple)
        assert key
        assert all(isinstance(part, int | float) and not isinstance(part, bool) for part in key)
    assert all(a <= b for a, b in pairwise(sorted(keys)))
    assert len(set(keys)) > 1


@named(ORDERS)
def test_keys_follow_from_their_arguments_alone(path):
    order, twin = make(path), make(path)
    forwards = [order.key(waiting, 3.0) for waiting in QUEUE]
    backwards = [twin.key(waiting, 3.0) for waiting in reversed(QUEUE)]
    assert forwards == backwards[::-1]


@named(VICTIMS)
def test_victim_keys_are_comparable_tuples_that_follow_from_their_arguments(path):
    policy, twin = make(path), make(path)
    keys = [policy.key(running) for running in BATCH]
    assert all(isinstance(key, tuple) and key for key in keys)
    assert all(isinstance(part, int | float) for key in keys for part in key)
    assert all(a <= b for a, b in pairwise(sorted(keys)))
    assert len(set(keys)) > 1
    assert [twin.key(running) for running in reversed(BATCH)] == keys[::-1]


def test_the_engines_own_rule_is_no_policy():
    assert make(CONF / "victim" / "engine.yaml") is None


@named(ORDERS)
def test_an_order_says_whether_it_changes_with_time(path):
    order = make(path)
    assert isinstance(order.changes_with_time, bool)
    if not order.changes_with_time:
        for now_s in (0.0, 1e3, 1e9):
            assert [order.key(w, now_s) for w in QUEUE] == [order.key(w, 0.0) for w in QUEUE]


@named([path for path in ORDERS if "patience_s" in load(path)])
def test_patience_is_a_change_with_time(path):
    config = OmegaConf.merge(load(path), {"patience_s": 5.0})
    order = instantiate(config, _convert_="all")
    assert order.changes_with_time
    oldest = QUEUE[0]
    assert min(QUEUE, key=lambda w: order.key(w, oldest.arrived_s + 5.1)) is oldest


@named(PREDICTORS)
def test_predictions_are_positive_and_finite(path):
    predictor = make(path)
    for request in REQUESTS:
        tokens = predictor.predict(request, seed=1)
        assert 1 <= tokens < 1e9


@named(PREDICTORS)
def test_a_prediction_follows_from_request_and_seed_alone(path):
    first, second = make(path), make(path)
    forwards = [first.predict(request, seed=2) for request in REQUESTS]
    backwards = [second.predict(request, seed=2) for request in reversed(REQUESTS)]
    assert forwards == backwards[::-1]
    later = [replace(request, arrival_ps=request.arrival_ps + 10**12) for request in REQUESTS]
    assert [first.predict(request, seed=2) for request in later] == forwards


@named(PREDICTORS)
def test_a_predictor_states_its_error_in_one_line(path):
    text = make(path).describe()
    assert text.strip()
    assert "\n" not in text
