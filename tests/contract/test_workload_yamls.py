"""Every workload makes a load that keeps the promise of its seam."""

import dataclasses
import os
from itertools import pairwise
from pathlib import Path

import pytest
import yamls
from omegaconf import OmegaConf

from servesim.app.api import setup_from

MANY = 300
OWN_TRACE = (
    "workload.columns.arrival=t",
    "workload.columns.prompt_tokens=in",
    "workload.columns.output_tokens=out",
    "workload.unit=s",
    "workload.origin=zero",
)


@pytest.fixture(autouse=True)
def data_beside_the_checkout(monkeypatch):
    if not os.environ.get("SERVESIM_DATA"):
        beside = yamls.CONF.parent.parent / "shared" / "data"
        monkeypatch.setenv("SERVESIM_DATA", str(beside))


def own_sessions(tmp_path):
    """A file of sessions of three turns, each prompt with half of what came before."""
    own = tmp_path / "turns.csv"
    header = "session,turn,start_s,gap_s,prompt_tokens,output_tokens,shared_prefix_tokens"
    rows = (f"s{i // 3},{i % 3},{i // 3},{i % 3},{i % 7 + 2},2,{i % 3 and 2}" for i in range(MANY))
    own.write_text("\n".join([header, *rows]))
    return own


def choices(path, tmp_path, *more):
    """Overrides that choose the workload: shrunk, and with a trace where it wants the user's."""
    tree = yamls.tree(path)
    shrunk = [f"workload.{key}={MANY}" for key in ("limit", "num_requests") if key in tree]
    if path.stem == "sessions":
        return [f"workload={path.stem}", f"workload.path={own_sessions(tmp_path)}", *shrunk, *more]
    if OmegaConf.is_missing(tree, "path"):
        own = tmp_path / "own.csv"
        rows = (f"{i},{i % 7 + 1},{i % 5 + 1}" for i in range(MANY))
        own.write_text("\n".join(["t,in,out", *rows]))
        return [f"workload={path.stem}", f"workload.path={own}", *OWN_TRACE, *shrunk, *more]
    if "path" in tree and not Path(tree.path).is_file():
        pytest.skip(f"needs public data that is not part of the repository: {tree.path}")
    return [f"workload={path.stem}", *shrunk, *more]


@yamls.each("workload")
def test_requests_are_sorted_numbered_and_not_empty(path, tmp_path):
    load = setup_from(*choices(path, tmp_path)).workload.load(1)
    requests = load.requests
    assert 0 < len(requests) <= MANY
    assert [r.rid for r in requests] == list(range(len(requests)))
    assert all(a.arrival_ps <= b.arrival_ps for a, b in pairwise(requests))
    assert requests[0].arrival_ps >= 0
    for request in requests:
        counts = (request.arrival_ps, request.prompt_tokens, request.output_tokens)
        assert all(type(count) is int for count in counts)
        assert min(request.prompt_tokens, request.output_tokens, request.max_tokens) >= 1
    assert all(type(count) is int for count in load.counts.values())
    assert all(note and "\n" not in note for note in load.notes)


@yamls.each("workload")
def test_the_seed_alone_makes_the_load(path, tmp_path):
    first, other = (
        setup_from(*choices(path, tmp_path, *more)).workload
        for more in ((), ("cost=roofline", "hardware=l40s", "policies/order=shortest_prompt"))
    )
    assert first.load(7) == first.load(7) == other.load(7)
    assert first == other
    drawn = "num_requests" in yamls.tree(path) and path.stem != "fixed"
    assert (first.load(7).requests != first.load(8).requests) is drawn


@yamls.each("workload")
def test_a_rate_changes_when_requests_come_and_nothing_else(path, tmp_path):
    slow, fast = (
        setup_from(*choices(path, tmp_path, f"workload.rate_rps={rate}")).workload.load(1).requests
        for rate in (2, 4)
    )
    assert slow[-1].arrival_ps == pytest.approx(2 * fast[-1].arrival_ps, rel=1e-6)
    for one, other in zip(slow, fast, strict=True):
        assert dataclasses.replace(one, arrival_ps=0) == dataclasses.replace(other, arrival_ps=0)


@yamls.each("workload")
def test_who_waits_for_replies_waits_alike_at_any_seed_and_rate(path, tmp_path):
    overrides = choices(path, tmp_path)
    releases = [
        setup_from(*overrides, *more).workload.load(seed).release
        for seed, more in ((1, ()), (2, ("workload.rate_rps=3",)))
    ]
    assert releases[0] == releases[1]
    if releases[0] is not None:
        load = setup_from(*overrides).workload.load(1)
        sent = releases[0].begin(load.requests).first()
        assert 0 < len(sent) <= len(load.requests)
        assert all(ps >= load.requests[rid].arrival_ps for rid, ps in sent)
