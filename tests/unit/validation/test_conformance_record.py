"""The recording loop, with a scheduler that can be followed by hand in the engine's place."""

from validation.conformance.record import MAX_STEPS, Planned, record, write_traces
from validation.conformance.trace import ScriptedRequest, Trace, read_traces
from validation.conformance.workloads import scenario


class OneTokenEach:
    """Every request gets a token in every step, for as many steps as it may have."""

    prefix_stats = {"queries": 5, "hits": 2}  # noqa: RUF012
    free_queue = [3, 1]  # noqa: RUF012
    num_free_blocks = 2

    def __init__(self, ends=True):
        self.left, self.log, self.drafts, self.ends = {}, [], 0, ends

    def add(self, request, step):
        self.left[request.id] = request.max_tokens
        self.log.append(f"{step} +{request.id}")

    def abort(self, request_id):
        if self.left.pop(request_id, None) is not None:
            self.log.append(f"-{request_id}")

    def schedule(self):
        tokens = dict.fromkeys(self.left, 1 + self.drafts)
        drafts = dict.fromkeys(tokens, self.drafts) if self.drafts else {}
        return Planned(tokens, drafts, (), tuple(tokens), None)

    def update(self, planned, sampled):
        assert set(sampled) == set(planned.sampling)
        self.log.append({name: tokens for name, tokens in sampled.items() if name in self.left})
        emitted, finished = {}, []
        for name in planned.tokens:
            if name in self.left:
                self.left[name] -= len(sampled[name])
                emitted[name] = len(sampled[name])
                if self.ends and self.left[name] <= 0:
                    finished.append(name)
                    del self.left[name]
        return emitted, finished

    def propose(self, request_ids, count):
        self.drafts = count
        self.log.append(f"drafts {count}")

    @property
    def has_unfinished(self):
        return bool(self.left)

    @property
    def running(self):
        return list(self.left)


def planned(requests, outputs=None, accepted=None, **config):
    settings = {"asyn": False, "K": 0, "caching": True} | config
    return Trace("t", "0.33", settings, tuple(requests), (), None, outputs or {}, accepted or {})


def test_a_synchronous_step_is_planned_and_updated_in_one_row():
    requests = [ScriptedRequest(0, "a", (1,), 2, 0), ScriptedRequest(4, "b", (1,), 1, 0)]
    engine = OneTokenEach()
    trace = record(planned(requests, {"a": [8]}), engine)
    # the script ends after one token: the next is 100 + its index; steps 2 and 3 have nobody
    assert engine.log == ["0 +a", {"a": [8]}, {"a": [101]}, "4 +b", {"b": [100]}]
    assert [row["step"] for row in trace.rows] == [0, 1, 4]
    assert trace.rows[1] == {
        "step": 1,
        "sched": {"a": 1},
        "drafts": {},
        "preempted": [],
        "free_after_schedule": 2,
        "running": ["a"],
        "emitted": {"a": 1},
        "finished": ["a"],
        "free_after_update": 2,
    }
    assert trace.final_free_queue == (3, 1)
    assert trace.prefix_stats == {"queries": 5, "hits": 2}


def test_asynchronous_steps_are_updated_one_row_later():
    engine = OneTokenEach()
    trace = record(planned([ScriptedRequest(0, "a", (1,), 2, 0)], asyn=True), engine)
    # step 2 plans a third token before the update that ends the request; it is dropped in step 3
    assert [row.get("emitted") for row in trace.rows] == [None, {"a": 1}, {"a": 1}, {}]
    assert ["sched" in row for row in trace.rows] == [True, True, True, False]
    assert trace.rows[2]["finished"] == ["a"]
    assert engine.log[1:] == [{"a": [100]}, {"a": [101]}, {}]


def test_drafts_are_proposed_after_an_update_and_accepted_by_the_script():
    engine = OneTokenEach()
    trace = record(
        planned([ScriptedRequest(0, "a", (1,), 6, 0)], accepted={"a": [1, 9]}, K=2), engine
    )
    # 1 token, then 1 + 1, then 1 + min(9, 2): six in three steps
    assert [row["emitted"] for row in trace.rows] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [row["drafts"] for row in trace.rows] == [{}, {"a": 2}, {"a": 2}]


def test_aborts_come_after_arrivals_and_those_of_the_ended_are_passed_over():
    requests = [
        ScriptedRequest(0, "a", (1,), 1, 0, 3),
        ScriptedRequest(2, "b", (1,), 9, 0, 2),
        ScriptedRequest(2, "c", (1,), 9, 0, 3),
    ]
    engine = OneTokenEach()
    trace = record(planned(requests), engine)
    assert engine.log == ["0 +a", {"a": [100]}, "2 +b", "2 +c", "-b", {"c": [100]}, "-c"]
    assert [row["step"] for row in trace.rows] == [0, 2]


def test_a_run_without_end_is_recorded_up_to_the_limit():
    trace = record(planned([ScriptedRequest(0, "a", (1,), 1, 0)]), OneTokenEach(ends=False))
    assert trace.rows[-1]["step"] == MAX_STEPS - 1


def test_files_are_the_same_byte_for_byte_and_read_back(tmp_path):
    trace = record(scenario("0.33", 1), OneTokenEach())
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    write_traces(first, [trace, trace])
    write_traces(second, [trace, trace])
    assert first.read_bytes() == second.read_bytes()
    assert read_traces(first) == [trace, trace]
