"""What a run says of its own numbers: warnings, notes and the columns that go with them."""

import dataclasses

import pytest

import servesim
from servesim.app.api import setup_from
from servesim.app.progress import progress_bar
from servesim.app.run import execute
from servesim.units import ps_to_seconds

SMALL = ("workload=fixed", "workload.num_requests=6")
ROOFLINE = (*SMALL, "cost=roofline")


def warnings_of(*overrides):
    return list(servesim.simulate(*overrides).warnings)


def test_a_run_within_all_limits_has_no_warning():
    result = servesim.simulate(*SMALL)
    assert list(result.warnings) == []
    assert result.summary["outside_fit"] is None
    assert result.summary["cost_mismatch"] is None


def test_a_load_beyond_what_is_sustained_is_told_with_rho_and_growth():
    result = servesim.simulate(
        *("workload=fixed", "workload.num_requests=100", "workload.rate_rps=5", "cost=roofline"),
        "scheduler.max_num_seqs=2",
    )
    (line,) = result.warnings
    row = result.summary
    assert line.startswith(f"overloaded: {row['offered_rps']:.2f} requests/s come in, rho ")
    assert f"the queue grows by {row['backlog_growth_rps']:.2f} requests/s" in line


def test_steps_outside_the_fit_are_told_with_axis_and_range():
    result = servesim.simulate(
        *("workload=fixed", "workload.num_requests=2", "workload.prompt.tokens=60000"),
        "scheduler.max_num_batched_tokens=60000",
    )
    axes = result.summary["outside_fit"]
    low, high = setup_from(*SMALL).cost.axis_range("tokens")
    assert f"tokens {low:g}…{high:g}" in axes
    (line,) = [w for w in result.warnings if "fitted on" in w]
    assert line.endswith(
        f"of the engine's time, are outside the range that the cost was fitted on: {axes}"
    )
    assert result.summary["steps_outside_fit"] > 0


def test_a_cache_smaller_than_the_greatest_length_is_told():
    lines = warnings_of(*ROOFLINE, "kv.num_gpu_blocks=101", "max_model_len=4096")
    assert lines == [
        "the cache holds 1600 tokens, less than max_model_len 4096: the engine would refuse to "
        "start; here only requests that long are rejected"
    ]


@pytest.mark.parametrize(("blocks", "longest"), [(101, 1600), (100_001, 131_072)])
def test_no_max_model_len_is_the_models_or_what_the_cache_holds(blocks, longest):
    setup = setup_from(*ROOFLINE, f"kv.num_gpu_blocks={blocks}")
    assert setup.engine(setup.budget()).max_model_len == longest
    given = setup_from(*ROOFLINE, f"kv.num_gpu_blocks={blocks}", "max_model_len=1000")
    assert given.engine(given.budget()).max_model_len == 1000


def test_a_cost_of_another_deployment_is_told_in_warning_and_column():
    result = servesim.simulate(*SMALL, "hardware=h100_sxm", "cost.allow_mismatch=true")
    said = result.summary["cost_mismatch"]
    assert "RTX PRO 6000" in said
    (line,) = [w for w in result.warnings if "allow_mismatch" in w]
    assert line.endswith(said)


def test_duplicate_rows_of_a_trace_are_a_warning_and_a_count(tmp_path):
    trace = tmp_path / "twice.csv"
    row = "2023-11-16 18:15:46.6805900,100,10\n"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + row * 2)
    result = servesim.simulate("workload=azure_conv", f"workload.path={trace}", "cost=roofline")
    assert list(result.warnings) == ["1 rows repeat an earlier one (all are kept)"]
    assert result.summary["duplicate_rows"] == 1


@pytest.mark.parametrize("order", ["fcfs", "sjf_predicted"])
def test_the_predictors_error_is_noted_whatever_the_orders_name(order):
    notes = servesim.simulate(*ROOFLINE, f"policies/order={order}").notes
    assert "predicted reply lengths, for orders that use them: log-normal error, sigma 0.5" in notes


def test_progress_tells_how_many_requests_have_ended():
    states = []
    load = ("workload=azure_conv_like", "workload.num_requests=60", "cost=roofline")
    result = execute(setup_from(*load, "stepwise=true"), observer=states.append)
    ends = [r.last_token_ps for r in result.record.requests]
    assert len(states) > 2
    for state in states:
        assert state.requests_done == sum(end <= state.now_ps for end in ends)


def test_the_bar_shows_requests_done_and_simulated_time(capsys):
    with progress_bar(40, shown=True) as observer:
        from servesim.engine.observer import Progress

        observer(Progress(now_ps=2_500_000_000_000, requests_done=17, steps=99))
    shown = capsys.readouterr().err
    assert "17/40" in shown
    assert f"{ps_to_seconds(2_500_000_000_000):.1f} s simulated" in shown


def test_a_metric_of_the_users_own_is_in_the_summary():
    class Longest:
        def measure(self, run):
            return {"longest_prompt_tokens": max(r.prompt_tokens for r in run.requests)}

    setup = setup_from(*ROOFLINE)
    mine = dataclasses.replace(setup, metrics={**setup.metrics, "mine": Longest()})
    assert execute(mine).summary["longest_prompt_tokens"] > 0
