"""The recorded traces of the real scheduler agree, and a wrong number anywhere does not."""

import copy
import json
from pathlib import Path

import pytest

from servesim.policies.order.fcfs import Fcfs
from validation.conformance.replay import UnsupportedTraceError, replay
from validation.conformance.trace import read_traces

GOLDEN = Path(__file__).parents[3] / "validation/conformance/traces/golden_vllm_0.33.json"
RECORDED = json.loads(GOLDEN.read_text())
NAMES = [trace["name"] for trace in RECORDED]
PREEMPTING = "B preempt + cached resume"
SPECULATIVE = "E spec K=2"


def recorded(name):
    return copy.deepcopy(next(trace for trace in RECORDED if trace["name"] == name))


def replayed(tmp_path, trace):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([trace]))
    return replay(read_traces(path)[0])


@pytest.mark.parametrize("name", NAMES)
def test_every_trace_of_vllm_agrees(tmp_path, name):
    result = replayed(tmp_path, recorded(name))
    assert result.num_steps == len(recorded(name)["rows"])
    assert (result.num_mismatches, result.first_difference) == (0, "")


def test_the_asynchronous_trace_is_one_of_them():
    assert [trace["name"] for trace in RECORDED if trace["config"]["asyn"]] == ["D async EOS"]


def test_an_asynchronous_update_is_that_of_the_plan_before(tmp_path):
    trace = recorded("D async EOS")
    trace["rows"][1]["emitted"], trace["rows"][1]["finished"] = {"a": 1}, []
    result = replayed(tmp_path, trace)
    assert result.first_difference == "step 1: emitted is {'a': 1, 'b': 1}, recorded {'a': 1}"


@pytest.mark.parametrize(
    ("row", "key", "value", "words"),
    [
        (5, "sched", {"a": 2}, "step 5: sched is a:1, recorded a:2"),
        (0, "sched", {"b": 8, "a": 8}, "step 0: sched is a:8, b:8, recorded b:8, a:8"),
        (5, "preempted", [], "step 5: preempted is ['b'], recorded []"),
        (5, "running", ["b"], "step 5: running is ['a'], recorded ['b']"),
        (2, "free_after_schedule", 1, "step 2: free_after_schedule is 0, recorded 1"),
        (8, "free_after_update", 5, "step 8: free_after_update is 6, recorded 5"),
        (8, "finished", [], "step 8: finished is ['a'], recorded []"),
        (9, "emitted", {"b": 2}, "step 9: emitted is {'b': 1}, recorded {'b': 2}"),
    ],
)
def test_a_tampered_row_is_found_and_put_into_words(tmp_path, row, key, value, words):
    trace = recorded(PREEMPTING)
    trace["rows"][row][key] = value
    result = replayed(tmp_path, trace)
    assert (result.num_mismatches, result.first_difference) == (1, words)


def test_tampered_drafts_are_found(tmp_path):
    trace = recorded(SPECULATIVE)
    trace["rows"][1]["drafts"]["a"] = 1
    result = replayed(tmp_path, trace)
    assert (
        result.first_difference == "step 1: drafts is {'a': 2, 'b': 2}, recorded {'a': 1, 'b': 2}"
    )


def test_a_tampered_end_is_found(tmp_path):
    trace = recorded(PREEMPTING)
    trace["final_free_queue"][:2] = trace["final_free_queue"][1::-1]
    trace["prefix_stats"]["hits"] += 4
    result = replayed(tmp_path, trace)
    assert result.num_mismatches == 2
    assert result.first_difference.startswith("at the end: free queue is [2, 1, ")


def test_tampered_statistics_are_found(tmp_path):
    trace = recorded(PREEMPTING)
    trace["prefix_stats"]["hits"] += 4
    result = replayed(tmp_path, trace)
    assert result.first_difference == (
        "at the end: prefix statistics are {'queries': 16, 'hits': 0}, "
        "recorded {'queries': 16, 'hits': 4}"
    )


def test_a_trace_that_was_cut_short_is_found(tmp_path):
    trace = recorded(PREEMPTING)
    del trace["rows"][-1]
    assert replayed(tmp_path, trace).num_mismatches == 1  # blocks of b are still held


def test_what_is_not_compared_may_be_left_out(tmp_path):
    trace = recorded(PREEMPTING)
    for row in trace["rows"]:
        row.pop("waiting")
        row.pop("hit_on_admission", None)
    trace["final_free_queue"] = trace["prefix_stats"] = None
    assert replayed(tmp_path, trace).num_mismatches == 0


def test_a_scheduler_that_breaks_a_rule_is_found(tmp_path, monkeypatch):
    """Here the latest arrival is served first: `small` overtakes `big`."""

    class LatestFirst(Fcfs):
        def key(self, waiting, now_s):
            return (-waiting.arrival_order,)

    monkeypatch.setattr("validation.conformance.replay.Fcfs", LatestFirst)
    result = replayed(tmp_path, recorded("G head-of-line"))
    assert result.num_mismatches > 0


def test_a_policy_that_servesim_lacks_is_named(tmp_path):
    trace = recorded(PREEMPTING)
    trace["config"]["policy"] = "lpm"
    with pytest.raises(UnsupportedTraceError, match=r"^B preempt.*: policy lpm$"):
        replayed(tmp_path, trace)


def test_a_release_without_a_profile_is_replayed_by_that_of_another_and_says_so(tmp_path):
    trace = recorded("A chunked mixing")
    assert replayed(tmp_path, trace).stand_in == ""
    trace["release"] = "0.34.1"
    result = replayed(tmp_path, trace)
    assert (result.num_mismatches, result.stand_in) == (0, "0.34.1 by profile 0.33")


def test_another_release_is_another_scheduler(tmp_path):
    trace = recorded("A chunked mixing")
    trace["release"] = "0.20"
    result = replayed(tmp_path, trace)
    # up to 0.20, blocks that nobody can hit go to the tail of the free queue
    assert result.first_difference.startswith("at the end: free queue is [7, 8, ")


def test_a_drafter_that_drops_the_last_hit_is_another_scheduler(tmp_path):
    trace = recorded("C full-hit")
    trace["config"]["eagle_drop"] = True
    result = replayed(tmp_path, trace)
    assert result.first_difference == "step 3: sched is b:8, c:5, recorded b:4, c:1"


def given_up(step):
    """Two requests of four tokens; `b` is given up."""
    trace = recorded("D sync EOS")
    trace["requests"][1]["abort_step"] = step
    trace["outputs"] = {}
    trace["final_free_queue"] = trace["prefix_stats"] = None
    return trace


def test_a_request_is_given_up_before_the_step_is_planned(tmp_path):
    trace = given_up(1)
    result = replayed(tmp_path, trace)
    assert result.first_difference == "step 1: sched is a:1, recorded a:1, b:1"
    trace = given_up(3)  # it ended with step 2
    assert replayed(tmp_path, trace).first_difference.startswith("step 2: finished is ['b']")


def test_a_request_given_up_on_arrival_is_never_seen(tmp_path):
    result = replayed(tmp_path, given_up(0))
    assert result.first_difference == "step 0: sched is a:4, recorded a:4, b:4"
