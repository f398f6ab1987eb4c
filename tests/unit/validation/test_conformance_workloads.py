"""Random scenarios and what is counted in traces; neither needs vLLM."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.conformance import coverage
from validation.conformance.trace import EOS_TOKEN, ScriptedRequest, Trace
from validation.conformance.workloads import RELEASES, scenario

seeds = st.integers(0, 10**6)


@pytest.mark.parametrize("release", RELEASES)
def test_a_seed_gives_one_scenario(release):
    assert scenario(release, 3) == scenario(release, 3)
    assert scenario(release, 3) != scenario(release, 4)


@given(seeds, st.sampled_from(RELEASES))
def test_each_request_fits_the_pool_and_the_length_limit(seed, release):
    made = scenario(release, seed)
    config = made.config
    slots = (config["nblocks"] - 1) * config["bs"]
    assert slots >= config["max_len"] + config["la"]
    assert config["max_seqs"] <= config["max_tok"]
    assert config["chunked"] or config["max_tok"] >= config["max_len"]
    arrivals = [r.arrive for r in made.requests]
    assert arrivals == sorted(arrivals)
    for request in made.requests:
        assert 0 < len(request.prompt) < config["max_len"]
        assert request.abort_step is None or request.abort_step >= request.arrive
        assert all(0 <= count <= config["K"] for count in made.accepted.get(request.id, ()))
        assert EOS_TOKEN not in made.outputs.get(request.id, [])[:-1]


@given(seeds)
def test_a_release_is_asked_only_for_what_it_has(seed):
    old = scenario("0.11", seed)
    assert not (old.config["asyn"] and old.config["K"])
    if old.config["policy"] == "priority":
        assert len({r.arrive for r in old.requests}) == len(old.requests)
    assert scenario("0.20", seed).config["wm"] == 0


def test_two_hundred_seeds_have_every_setting():
    counts = coverage.settings(scenario("0.33", seed) for seed in range(200))
    assert len(counts) == 18
    assert min(counts.values()) >= 10


def test_events_are_counted_from_the_rows():
    # a ends by EOS with its second token, b by length, c is given up, d too late to matter
    config = scenario("0.33", 0).config | {"asyn": False}
    rows = (
        {"step": 0, "emitted": {"a": 1, "b": 1}, "preempted": ["c"], "drafts": {"a": 1}},
        {"step": 1, "emitted": {"a": 1}, "finished": ["a"], "preempted": [], "drafts": {}},
        {"step": 4, "emitted": {"b": 1, "d": 1}, "finished": ["b", "d"]},
    )
    requests = tuple(ScriptedRequest(0, name, (1,), 2, 0) for name in "ab")
    requests += (ScriptedRequest(0, "c", (1,), 2, 0, 3), ScriptedRequest(0, "d", (1,), 1, 0, 5))
    trace = Trace("t", "0.33", config, requests, rows, None, {"a": [8, EOS_TOKEN]})
    trace = replace(trace, prefix_stats={"queries": 9, "hits": 4})
    assert coverage.events([trace, trace]) == {
        "steps": 6,
        "asynchronous steps": 0,
        "speculative steps": 2,
        "preemptions": 2,
        "hit tokens": 8,
        "aborts": 2,
        "ends by EOS": 2,
        "ends by length": 4,
        "endless": 0,
    }
