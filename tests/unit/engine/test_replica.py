"""The replica's own duties: event order, rejection, cut-off, determinism."""

import gc

import pytest
from serving import MS, LinearTimer, engine, request, serve

from servesim import simulate
from servesim.content import SharedPrefix
from servesim.cost.base import listed_run
from servesim.errors import LivelockError, SettingError
from servesim.records import StepPlan, StepTime

STEP = 10 * MS


def test_an_arrival_at_a_step_boundary_is_in_the_step_that_begins_there():
    record = serve([request(0, 0, output=3), request(1, STEP)], keep_steps=True)
    assert record.requests[1].scheduled_ps == STEP


def test_an_arrival_during_a_step_waits_for_its_end():
    record = serve([request(0, 0, output=3), request(1, STEP + 1)])
    assert record.requests[1].scheduled_ps == 2 * STEP


def test_the_engine_sleeps_until_the_next_arrival():
    record = serve([request(0, 0, output=1), request(1, 100 * STEP, output=1)], keep_steps=True)
    assert [step.start_ps for step in record.steps] == [0, 100 * STEP]
    assert record.end_ps == 101 * STEP


def test_simultaneous_arrivals_after_idle_share_a_step():
    record = serve([request(i, 5 * STEP, output=1) for i in range(3)], keep_steps=True)
    assert [(step.start_ps, step.num_seqs) for step in record.steps] == [(5 * STEP, 3)]


def test_a_request_beyond_max_model_len_is_rejected_and_the_run_goes_on():
    requests = [request(0, prompt=90, output=20), request(1, prompt=80, output=20)]
    record = serve(requests, engine(max_model_len=100))
    assert [r.status for r in record.requests] == ["rejected", "finished"]
    assert record.requests[0].reason == "prompt + max_tokens = 110 > max_model_len 100"
    assert record.requests[0].queued_ps is None


def test_a_request_beyond_the_whole_cache_is_rejected_and_the_run_goes_on():
    # 5 usable blocks of 4: 20 tokens; the last sampled token needs no KV
    requests = [request(0, prompt=18, output=4), request(1, prompt=18, output=3)]
    record = serve(requests, engine(blocks=6))
    assert [r.status for r in record.requests] == ["rejected", "finished"]
    assert record.requests[0].reason == "prompt + max_tokens - 1 = 21 > 20 tokens of KV cache"


def test_a_cut_run_keeps_what_is_unfinished_and_what_never_arrived():
    requests = [request(0, 0, output=2), request(1, 0, output=50), request(2, 90 * STEP)]
    record = serve(requests, until_ps=10 * STEP)
    assert [r.status for r in record.requests] == ["finished", "unfinished", "unfinished"]
    assert [r.reason for r in record.requests] == ["", "run ended", "not arrived"]
    # a step ends at the cut itself: SimPy stops before it
    assert record.requests[1].output_tokens == 9
    assert record.end_ps == 10 * STEP


def test_a_preempted_request_is_counted_once_per_preemption_with_what_it_lost():
    # worked example B of the engine reference: b loses its blocks at step 5 and 4 computed tokens
    requests = [request(0, prompt=8, output=9), request(1, prompt=8, output=9)]
    scheduler = engine(blocks=7, max_tokens=16, max_seqs=2, max_model_len=24)
    a, b = serve(requests, scheduler).requests
    assert (a.preemptions, b.preemptions) == (0, 1)
    assert b.recomputed_tokens == 4
    assert b.output_tokens == 9


def test_cached_tokens_are_those_of_the_first_admission():
    prefix = SharedPrefix(group=0, tokens=12)
    requests = [request(0, 0, 14, 2, content=prefix), request(1, 5 * STEP, 14, 2, content=prefix)]
    record = serve(requests)
    assert [r.cached_tokens for r in record.requests] == [0, 12]
    assert (record.prefix_stats.queries, record.prefix_stats.hits) == (28, 12)


def test_steps_outside_the_fitted_range_are_counted_by_axis():
    class Narrow:
        def step_time(self, plan: StepPlan) -> StepTime:
            outside = ("tokens",) if plan.num_tokens > 3 else ()
            return StepTime(STEP, outside)

        def decode_run(self, decodes, steps):
            return listed_run(self, decodes, steps)

    totals = serve([request(0, prompt=4, output=3)], timer=Narrow()).totals
    assert (totals.steps, totals.outside_any, dict(totals.outside)) == (3, 1, {"tokens": 1})


def test_drafts_that_nobody_proposes_are_refused():
    with pytest.raises(SettingError, match="num_speculative_tokens=2"):
        serve([request(0)], engine(num_speculative_tokens=2))


def test_a_scheduler_that_never_gets_on_is_an_error_and_no_endless_loop():
    class Stuck:
        num_running, num_waiting, kv_blocks_used, kv_blocks = 1, 0, 0, 1
        num_speculative_tokens, block_size, pipeline_depth = 0, 4, 1

        def reject_reason(self, request):
            return None

        def add(self, request, predicted_tokens):
            pass

        def schedule(self, now_ps):
            return StepPlan(())

        def update(self, plan, accepted):
            from servesim.records import StepOutcome

            return StepOutcome((), ())

        def steady_steps(self):
            return 0

        def load(self):
            return 0, 0

    with pytest.raises(RuntimeError, match="stuck"):
        serve([request(0)], Stuck(), LinearTimer())


def test_the_same_load_gives_the_same_records():
    requests = [request(i, i * 3 * MS, prompt=5 + i % 7, output=1 + i % 5) for i in range(200)]
    first, second = (serve(requests, engine(blocks=40), keep_steps=True) for _ in range(2))
    assert first == second


def test_every_token_that_streams_is_in_exactly_one_gap_or_is_a_first_one():
    requests = [request(i, i * MS, prompt=9, output=1 + i % 6) for i in range(100)]
    record = serve(requests, engine(blocks=30))
    gaps = sum(record.itl_ps.values())
    assert gaps + len(requests) == sum(r.output_tokens for r in record.requests)


@pytest.mark.parametrize("stepwise", ["true", "false"])
def test_requests_that_preempt_each_other_for_ever_end_the_run_with_one_line(stepwise):
    # two at a time in 32 slots, three tokens a step: whoever holds more loses it all
    load = ("workload=fixed", "workload.prompt.tokens=6", "workload.output.tokens=27")
    with pytest.raises(LivelockError, match="preempt each other for ever: 10000 preemptions"):
        simulate(
            *load,
            "workload.num_requests=4",
            "workload.rate_rps=inf",
            "cost=roofline",
            "kv=no_prefix_cache",
            "kv.num_gpu_blocks=33",
            "kv.block_size=1",
            "max_model_len=33",
            "scheduler=vllm_v1_0.15",
            "scheduler.max_num_seqs=2",
            "scheduler.max_num_batched_tokens=3",
            "scheduler.long_prefill_token_threshold=1",
            "policies/victim=most_blocks",
            f"stepwise={stepwise}",
        )


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_is_left_as_it_was(was_on, monkeypatch):
    class Broken(LinearTimer):
        def step_time(self, plan):
            assert not gc.isenabled()
            raise ValueError("broken")

    try:
        gc.enable() if was_on else gc.disable()
        serve([request(0)])
        assert gc.isenabled() is was_on
        with pytest.raises(ValueError, match="broken"):
            serve([request(0)], timer=Broken())
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


def test_a_run_makes_no_reference_cycles():
    def cycles(count):
        requests = [request(i, i * MS, 30, 40) for i in range(count)]
        scheduler = engine(blocks=40, max_model_len=96)
        gc.collect()
        record = serve(requests, scheduler)
        assert sum(r.preemptions for r in record.requests) >= count // 3
        return gc.collect()

    gc.disable()
    try:
        cycles(1)  # what is made once
        assert cycles(120) == cycles(12)  # the simulation itself, and nothing that grows
    finally:
        gc.enable()
