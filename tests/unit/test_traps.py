"""Traps of naive simulators outside the schedulers, and the table of all of them.

What a naive model of one engine gets wrong is in that engine's tests; `tests/README.md` lists
every trap with its tests. Numbers are worked out in the comments.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from serving import ANY_GPU, MS, LinearTimer, request, serve

import servesim
from servesim.app.api import setup_from
from servesim.content import SharedPrefix
from servesim.cost.roofline import Roofline
from servesim.deployment import Deployment
from servesim.engine.recorder import Recorder
from servesim.engine.under_way import Step
from servesim.hardware.gpu import GPU
from servesim.metrics.base import tpot_s, ttft_s
from servesim.metrics.distribution import Distribution
from servesim.metrics.goodput import Goodput
from servesim.model.spec import ModelSpec
from servesim.policies.order.priority import Priority
from servesim.records import Emission, StepOutcome, StepPlan, StepTime, Work
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.seeds import stream
from servesim.workload.arrivals import Poisson

TESTS = Path(__file__).parents[1]
PROFILES = sorted(path.stem for path in (TESTS.parent / "conf/scheduler").glob("*.yaml"))
NUM_TRAPS = 55


class TestLatencies:
    def test_tokens_that_stream_together_are_one_gap_and_not_one_each(self):
        recorder = Recorder(keep_steps=False, block_size=16)
        recorder.queued(request(0, output=5), 0)
        for number, tokens in enumerate((1, 3, 1)):
            plan = StepPlan((Work(0, 1, 4 + number, 0, True),))
            step = Step(number * 10 * MS, plan, StepTime(10 * MS), 0, 1, 0)
            recorder.stepped(step, StepOutcome((Emission(0, tokens),), ()), (number + 1) * 10 * MS)
        assert recorder.gaps() == {10 * MS: 2}  # not four, of which two would be 0
        (record,) = recorder.records()
        assert record.output_tokens == 5
        assert tpot_s(record) == 0.020 / 4

    def test_tpot_leaves_out_the_time_to_the_first_token(self):
        # 40 prompt tokens at a millisecond each, then three decodes of 1 ms; steps cost nothing
        record = serve([request(0, prompt=40, output=4)], timer=LinearTimer(0, MS)).requests[0]
        assert ttft_s(record) == 0.040
        assert tpot_s(record) == 0.001  # over all tokens and the prompt it would be 43 ms / 4

    def test_a_percentile_lies_between_two_values_and_is_not_the_next_one(self):
        ten = Distribution.of(range(1, 11))
        # position 0.99 × 9 = 8.91: nine tenths of the way from the ninth to the tenth
        assert ten.percentile(99) == pytest.approx(9.91)
        assert ten.percentile(50) == 5.5

    def test_a_reply_of_one_token_meets_every_tpot_limit(self):
        run = serve([request(0, prompt=4, output=1)], timer=LinearTimer(10 * MS))
        assert Goodput(ttft_s=0.010, tpot_s=1e-9).measure(run)["slo_attainment"] == 1

    def test_a_limit_that_is_just_met_is_met(self):
        run = serve([request(0, prompt=4, output=3)], timer=LinearTimer(10 * MS))
        for ttft, tpot, met in ((0.010, 0.010, 1), (0.009, 0.010, 0), (0.010, 0.009, 0)):
            assert Goodput(ttft, tpot).measure(run)["slo_attainment"] == met


class TestLoads:
    def test_a_normalised_load_has_exactly_its_rate_and_a_first_gap(self):
        raw = Poisson().times(100, stream(1, "arrivals"))
        scaled = Poisson(normalise=True).times(100, stream(1, "arrivals"))
        assert scaled[-1] == 100  # vLLM's client: N arrivals in N mean gaps …
        assert abs(raw[-1] - 100) > 1  # … where a Poisson process has that on average only
        assert scaled[0] == pytest.approx(raw[0] * 100 / raw[-1])  # nobody comes at 0

    def test_no_warm_up_fills_the_cache_before_the_first_request(self):
        prompt = SharedPrefix(0, 40)
        load = [request(i, i * 1000 * MS, prompt=40, output=1, content=prompt) for i in range(2)]
        first, second = serve(load, timer=LinearTimer(0, MS)).requests
        assert (first.cached_tokens, ttft_s(first)) == (0, 0.040)
        assert (second.cached_tokens, ttft_s(second)) == (36, 0.004)  # all but the last block

    def test_policies_are_compared_on_the_same_requests(self):
        few = ("workload.num_requests=40", "workload.rate_rps=50", "seed=3")
        columns = ["arrival_s", "prompt_tokens", "output_tokens", "priority"]
        runs = [
            servesim.simulate(*few, *other).requests
            for other in ((), ("policies/order=shortest_prompt", "scheduler=sglang"))
        ]
        assert runs[0][columns].equals(runs[1][columns])
        assert not runs[0]["ttft_s"].equals(runs[1]["ttft_s"])


class TestCosts:
    """2 layers of hidden size 100, 80 bytes of KV per token; 1 GB/s: a byte takes a nanosecond."""

    def seconds(self, *work):
        model = ModelSpec("toy", 2, 100, 2, 1, 10, 80, 1000, False, 4096)
        gpu = GPU("slow memory", 1.0, 1.0, {"bf16": 1000.0}, 1.0)
        timer = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 0.0).bind(Deployment(model, gpu))
        return timer.step_time(StepPlan(work)).duration_ps

    def test_decodes_of_long_contexts_cost_their_contexts_and_not_their_number(self):
        def step(context):
            return self.seconds(*(Work(i, 1, context - 1, 0, True) for i in range(4)))

        assert step(1000) - step(500) == 4 * 500 * 80 * 1000

    def test_each_chunk_of_a_prompt_reads_again_what_the_chunks_before_it_wrote(self):
        whole = self.seconds(Work(0, 800, 0, 0, False))
        chunks = [self.seconds(Work(0, 200, past, 0, False)) for past in (0, 200, 400, 600)]
        weights = 2 * 30_000 * 2 * 1000  # read once, or four times
        assert sum(chunks) - whole == 3 * weights + (200 + 400 + 600) * 80 * 1000


@pytest.mark.parametrize("profile", PROFILES)
def test_the_smaller_priority_is_served_first_in_every_profile(profile):
    cache = CacheSize(65, 16, enable_prefix_caching=True)  # 1024 tokens, one prompt at a time
    setup = EngineSetup(ANY_GPU, cache, 1000, Priority())
    scheduler = setup_from(f"scheduler={profile}").profile.start(setup)
    load = [request(rid, 0, 600, 3, priority=p) for rid, p in enumerate((5, 9, 0, 7))]
    done = serve(load, scheduler).requests
    assert sorted(range(4), key=lambda rid: done[rid].last_token_ps) == [2, 0, 3, 1]


def table():
    """Trap number → the text of its tests' column."""
    text = (TESTS / "README.md").read_text()
    return {int(n): tests for n, tests in re.findall(r"^\| (\d+) \| .+? \| (.+) \|$", text, re.M)}


@cache
def names_of(path):
    """`test` or `Class::test` of everything that pytest collects in a file."""
    names = set()
    for node in ast.parse((TESTS / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            names |= {f"{node.name}::{name}" for name in inner}
    return names


def test_the_table_has_every_trap():
    assert list(table()) == list(range(1, NUM_TRAPS + 1))


@pytest.mark.parametrize("number", range(1, NUM_TRAPS + 1))
def test_a_trap_has_tests_that_exist_or_waits_for_something(number):
    cell = table()[number]
    tests = re.findall(r"`([\w/]+\.py)::([\w:]+)`", cell)
    assert tests or cell.startswith("later: needs ")
    for path, name in tests:
        assert name.rpartition("::")[2].startswith("test_")
        assert name in names_of(path), f"trap {number}: no {name} in {path}"
