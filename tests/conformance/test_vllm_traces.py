"""The recorded traces of vLLM's schedulers, replayed: no vLLM is needed."""

from pathlib import Path

import pytest

from validation.conformance import coverage
from validation.conformance.replay import replay
from validation.conformance.trace import read_traces
from validation.conformance.workloads import RELEASES, scenario

TRACES = Path(__file__).parents[2] / "validation/conformance/traces"


@pytest.fixture(scope="module", params=RELEASES)
def recorded(request):
    return request.param, read_traces(TRACES / f"vllm_{request.param}.json.gz")


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
