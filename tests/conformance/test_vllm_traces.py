"""The recorded traces of vLLM's schedulers, replayed: no vLLM is needed."""

from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import get_args

import pytest

from servesim.scheduler.vllm.releases import profile_of
from servesim.scheduler.vllm.switches import Switches
from servesim.scheduler.vllm.v1 import VllmV1
from validation.conformance import coverage
from validation.conformance.replay import replay
from validation.conformance.trace import read_traces
from validation.conformance.workloads import RELEASES, scenario

TRACES = Path(__file__).parents[2] / "validation/conformance/traces"


@cache
def traces_of(release):
    return read_traces(TRACES / f"vllm_{release}.json.gz")


@pytest.fixture(scope="module", params=RELEASES)
def recorded(request):
    return request.param, traces_of(request.param)


def test_every_step_of_every_trace_agrees(recorded):
    _, traces = recorded
    results = [replay(trace) for trace in traces]
    assert [f"{r.name}: {r.first_difference}" for r in results if r.num_mismatches] == []
    assert sum(r.num_steps for r in results) > 25_000


def test_the_traces_are_those_of_their_release_and_seeds(recorded):
    release, traces = recorded
    assert len(traces) >= 200
    for seed, trace in enumerate(traces):
        made = scenario(release, seed)
        assert (trace.release, trace.config) == (release, made.config)
        assert trace.requests == made.requests
        assert (trace.outputs, trace.accepted) == (made.outputs, made.accepted)


def test_every_setting_and_event_occurs_often(recorded):
    release, traces = recorded
    settings, events = coverage.settings(traces), coverage.events(traces)
    if release < "0.32":
        assert settings.pop("watermark") == 0  # no such option
    events.pop("endless")
    assert min(settings.values()) >= 15, settings
    assert min(events.values()) >= 400, events


def test_the_files_stay_small():
    assert sum(path.stat().st_size for path in TRACES.glob("vllm_*.json.gz")) < 4.5 * 2**20


# With one step in flight a victim's tokens come in before it could resume, so that nobody waits or
# is set aside, and drafts go only to requests that sampled. The others refuse or choose a default.
UNSEEN = {
    "stores_drafts_in_prefill",
    "async_victim_waits",
    "set_aside",
    "async_with_drafts",
    "admission_watermark",
    "defaults_know_160_gib",
}


@pytest.mark.parametrize("switch", sorted({f.name for f in fields(Switches)} - UNSEEN))
def test_a_wrong_switch_is_found_by_some_trace_of_the_newest_release(switch, monkeypatch):
    right = getattr(profile_of("0.33").switches, switch)
    kind = Switches.__dataclass_fields__[switch].type
    others = [not right] if kind is bool else [v for v in get_args(kind) if v != right]
    for other in others:
        wrong = partial(VllmV1, switches={switch: other})
        monkeypatch.setattr("validation.conformance.replay.VllmV1", wrong)
        assert any(replay(trace).num_mismatches for trace in traces_of("0.33")), other
