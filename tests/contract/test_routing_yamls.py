"""Every routing policy keeps its seam's promise."""

from dataclasses import fields, is_dataclass

import yamls
from hydra.utils import instantiate

from servesim.policies.routing.base import EngineCounts
from servesim.records import Request

LOAD = [Request(rid, rid * 10**10, 100, 50, 200) for rid in range(50)]


def made(path):
    return instantiate(yamls.tree(path), _convert_="all")


def routed(path, engines, told_again):
    router = made(path).start(engines)
    chosen = []
    for request in LOAD:
        counts = [EngineCounts(request.rid % (i + 2), 3 * i) for i in range(engines)]
        router.observe(request.arrival_ps, counts)
        if told_again:
            router.observe(request.arrival_ps + 1, counts)
        chosen.append(router.route(request, request.arrival_ps + 2))
    return chosen


@yamls.each("policies/routing")
def test_a_policy_is_a_frozen_value_whose_fields_are_its_yaml(path):
    assert path.read_text().startswith("# ")
    policy = made(path)
    assert is_dataclass(policy)
    assert policy.__dataclass_params__.frozen
    assert set(yamls.tree(path)) == {"_target_", *(field.name for field in fields(policy))}
    assert policy == made(path)


@yamls.each("policies/routing")
def test_a_request_goes_to_one_of_the_engines_and_again_to_the_same_one(path):
    chosen = routed(path, 3, told_again=False)
    assert set(chosen) <= {0, 1, 2}
    assert len(set(chosen)) > 1
    assert chosen == routed(path, 3, told_again=False)


@yamls.each("policies/routing")
def test_being_told_the_same_counts_again_changes_nothing(path):
    assert routed(path, 3, told_again=True) == routed(path, 3, told_again=False)


@yamls.each("policies/routing")
def test_the_only_engine_gets_all(path):
    assert set(routed(path, 1, told_again=False)) == {0}
