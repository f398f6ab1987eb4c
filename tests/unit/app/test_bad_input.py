"""Each mistake gets one clear line on standard error and exit code 2."""

import os
import sys

import pytest

from servesim.__main__ import main

BASE = ("workload=fixed", "workload.num_requests=3")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


CASES = {
    "policies/order=fcsf": "unknown policies/order 'fcsf' (known: fcfs, priority, ",
    "policies/ordr=fcfs": "unknown config group 'policies/ordr'",
    "model=llama3.1_8": "did you mean 'llama3.1_8b'?",
    "hardware=h10_sxm": "did you mean 'h100_sxm'?",
    "cost=rofline": "did you mean 'roofline'?",
    "workload=azure_con": "did you mean 'azure_conv'?",
    "scheduler=vlm_v1": "did you mean 'vllm_v1'?",
    "experiment=policy_comparisn": "did you mean 'policy_comparison'?",
    "metrics=[latency,goodputs]": "did you mean 'goodput'?",
    "scheduler.max_num_seq=8": "did you mean 'max_num_seqs'?",
    "kv.block_sise=16": "did you mean 'block_size'?",
    "foo=1": "unknown setting of servesim 'foo'",
    "+foo=1": "unknown setting 'foo'",
    "+kv.foo=1": "kv has no setting 'foo'",
    "~kv.block_size +kv.block_size=x": "kv.block_size='x': must be a whole number",
    "workload.rate_rps=-1": "workload.rate_rps=-1: must be above 0",
    "workload.num_requests=0": "workload.num_requests=0: must be 1 or more",
    "kv.block_size=0": "kv.block_size=0: must be 1 or more",
    "kv.gpu_memory_utilization=1.5": "kv.gpu_memory_utilization=1.5: must be in (0, 1]",
    "scheduler.watermark=-0.1": "scheduler.watermark=-0.1: must be in [0, 1]",
    "scheduler.enable_chunked_prefill=2": "must be true or false",
    "scheduler.max_num_seqs=64 scheduler.max_num_batched_tokens=32": (
        "scheduler.max_num_batched_tokens=32: must be at least max_num_seqs; nearest: 64"
    ),
    "scheduler.enable_chunked_prefill=false scheduler.max_num_batched_tokens=512": (
        "must be at least max_model_len when enable_chunked_prefill=false"
    ),
    "+scheduler.num_speculative_tokens=2": "scheduler.num_speculative_tokens=2: the simulation",
    "seed=1,2": "seed=1,2: several values make a sweep; add -m",
    "experiment=policy_comparison seed=1,2 kv.block_sise=8": "did you mean 'block_size'?",
    "seed=-1": "seed=-1: must be 0 or more",
    "seed=one": "seed='one': must be a whole number",
    "until_s=0": "until_s=0: must be above 0",
    "max_model_len=1": "max_model_len=1: must be 2 or more",
    "tp=3 cost=roofline": "tp=3: must",
    "dtype=fp9": "unknown dtype 'fp9'",
    "engine=5": "engine=5: must be text",
    "engine=null cost=roofline": "engine=None: must be text",
    "engine=[vllm]": "engine=['vllm']: must be text",
    "engine=sglang": "does not hold for engine sglang instead of vllm; choose a cost fitted for it",
    "model=llama3.1_70b hardware=l40s cost=roofline": "no KV cache: meta-llama/Llama-3.1-70B",
    "hardware=h100_sxm": "RTX PRO 6000",  # the fitted cost holds for one GPU
    "workload=trace": "must be given",
    "workload=azure_conv workload.path=absent.csv": "absent.csv",
    "policies.predictor.sigma=-1": "policies.predictor.sigma=-1: must be 0 or more",
    "metrics.goodput.ttft_s=0": "metrics.goodput.ttft_s=0: must be above 0",
    "metrics.latency.percentiles=[50,200]": "metrics.latency.percentiles=200: must be in [0, 100]",
    "output.format=xml": "unknown output.format 'xml' (known: json, table)",
    "output.progress=maybe": "unknown output.progress 'maybe'",
    "objective=ttft_p98_s": "did you mean 'ttft_p9",
    "objective=order": "objective='order': that column holds no number but 'fcfs'",
    "objective=goodput_rps metrics=[latency]": "objective='goodput_rps': is no column",
    "model=null": "model: no option is chosen (known: bloom_176b, ",
    "cost=null": "cost: no option is chosen (known: ",
    "workload=null": "workload: no option is chosen",
    "kv=null": "kv: no option is chosen (known: no_prefix_cache, paged)",
    "scheduler=null": "scheduler: no option is chosen",
    "policies=null": "no option is chosen (known: policies/admission, policies/order, ",
    "policies.order=null": "policies/order: no option is chosen (known: fcfs, ",
    "metrics=null": "metrics: no option is chosen (known: batch, ",
    "metrics=[]": "metrics: no option is chosen (known: batch, ",
    "metrics.latency=null": "metrics.latency=None: is no metric",
    "~model": "model: no option is chosen",
    "cost=5": "unknown cost '5' (known: bloom_176b_a100_tp8, ",
    "experiment=null seed=1,2": "experiment: no option is chosen",
    "model=null kv.block_sise=8": "no option is chosen",
    "experiment=null": "experiment: no option is chosen (known: engines_compared, ",
    "-m cost=null,roofline": "cost: no option is chosen",
    "until_s=1e-10": "until_s=1e-10: must be a nanosecond or more; nearest: 1e-9",
    "max_model_len=131073": (
        "max_model_len=131073: meta-llama/Llama-3.1-8B has max_position_embeddings 131072; "
        "nearest: 131072"
    ),
    "output.files=maybe": "output.files='maybe': must be true or false",
    "output.steps=7": "output.steps=7: must be true or false",
    "output.timeline=7": "output.timeline=7: must be true or false",
    "metrics.latency.percentiles=50": "percentiles=50: must be a list of numbers, e.g. [50, 99]",
    "metrics.latency.percentiles=p50": "percentiles='p50': must be a list of numbers",
    "hardware.dense_tflops=null": "hardware.dense_tflops=None: must be a mapping {dtype: TFLOP/s}",
    "workload=azure_conv_like workload.priorities={a:1}": (
        "workload.priorities has the entries 0, 1, 2: change one with "
        "workload.priorities.NAME=VALUE, add one with +workload.priorities.NAME=VALUE"
    ),
    "workload=azure_conv workload.path=null": "workload.path=None: must be text",
    "workload=azure_conv workload.path=5": "workload.path=5: must be text",
    "workload=trace workload.path=a.csv workload.columns.arrival=null "
    "workload.columns.prompt_tokens=p workload.columns.output_tokens=o workload.unit=s "
    "workload.origin=zero": "workload.columns.arrival=None: must be text",
    "hydra.run.dir=/dev/null/there": "cannot write to output directory /dev/null/there",
    "just_a_word": "cannot read 'just_a_word': expected setting=value",
    "seed=${nowhere}": "nowhere",
    "model._target_=servesim.model.spec.NoSuch": "there is no such class",
}


@pytest.mark.parametrize("arguments", CASES, ids=lambda a: a.replace(" ", ","))
def test_one_line_and_exit_code_2(arguments, capsys):
    words = arguments.split()
    base = () if any(word.startswith("workload=") for word in words) else BASE
    assert main([*base, *words]) == 2
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("error: ")
    assert CASES[arguments] in lines[0]
    assert printed.out == ""


def test_an_output_directory_that_is_a_file_is_named(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert main([*BASE, "hydra.run.dir=taken/run"]) == 2
    assert "cannot write to output directory" in capsys.readouterr().err


def test_an_empty_trace_is_named(tmp_path, capsys):
    trace = tmp_path / "empty.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert main(["workload=azure_conv", f"workload.path={trace}"]) == 2
    error = capsys.readouterr().err
    assert str(trace) in error
    assert len(error.strip().splitlines()) == 1


def test_a_block_size_that_the_traces_block_ids_do_not_fit_is_named_in_full(tmp_path, capsys):
    trace = tmp_path / "blocks.jsonl"
    row = '{"idx": 0, "input_toks": 40, "output_toks": 2, "arrival_time_ns": 0, "hash_ids": [0, 1]}'
    trace.write_text(row + "\n")
    base = ("workload=llmservingsim_blocks", f"workload.path={trace}", "cost=roofline")
    assert main([*base, "kv.block_size=24"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: kv.block_size=24: the trace has ids per 16 tokens")
    assert len(error.strip().splitlines()) == 1
    assert main([*base, "kv.block_size=32"]) == 0
    # without a prefix cache nobody asks for the ids
    assert main([*base, "kv.block_size=24", "kv.enable_prefix_caching=false"]) == 0


def test_an_unknown_option_in_a_sweep_stops_it_before_any_run(tmp_path, capsys):
    assert main(["-m", *BASE, "policies/order=fcfs,fcsf"]) == 2
    assert "did you mean 'fcfs'?" in capsys.readouterr().err
    assert not list(tmp_path.rglob("summary.json"))


def test_an_objective_is_looked_at_before_the_run(monkeypatch, capsys):
    from servesim.app import job

    def began(*_args, **_kwargs):
        raise AssertionError("the run was begun")

    monkeypatch.setattr(job, "execute", began)
    assert main([*BASE, "objective=ttft_p98_s"]) == 2
    line = capsys.readouterr().err
    assert "is no column of summary.json; did you mean 'ttft_p99_s'?" in line
    assert len(line) < 120  # the nearest, not all sixty


def test_a_metric_alone_needs_no_objective(capsys):
    assert main([*BASE, "metrics=[latency]"]) == 0


def test_an_empty_data_folder_is_as_good_as_none(monkeypatch, capsys):
    monkeypatch.setenv("SERVESIM_DATA", "")
    assert main(["workload=azure_conv"]) == 2
    assert "error: ../shared/data/azure-llm-2023/" in capsys.readouterr().err


def test_arguments_and_environment_are_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["notebook", "--own"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for words in ([*BASE], [*BASE, "seed=-1"], ["--help"]):
        main(words)
        assert sys.argv == ["notebook", "--own"]
        assert os.environ["HYDRA_FULL_ERROR"] == "0"


def test_a_class_whose_module_does_not_load_says_why(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_orders.py").write_text("class Mine(Missing):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*BASE, "policies.order._target_=my_orders.Mine"]) == 2
    error = capsys.readouterr().err
    assert "policies.order._target_='my_orders.Mine': cannot be loaded: NameError(" in error
    assert "'Missing' is not defined" in error


def test_a_programming_error_keeps_its_traceback(monkeypatch):
    from servesim.app import job

    def broken(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(job, "execute", broken)
    with pytest.raises(ZeroDivisionError):
        main(list(BASE))
