"""Each mistake gets one clear line on standard error and exit code 2."""

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


def test_an_unknown_option_in_a_sweep_stops_it_before_any_run(tmp_path, capsys):
    assert main(["-m", *BASE, "policies/order=fcfs,fcsf"]) == 2
    assert "did you mean 'fcfs'?" in capsys.readouterr().err
    assert not list(tmp_path.rglob("summary.json"))


def test_a_programming_error_keeps_its_traceback(monkeypatch):
    from servesim.app import simulate

    def broken(*_args, **_kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(simulate, "execute", broken)
    with pytest.raises(ZeroDivisionError):
        main(list(BASE))
