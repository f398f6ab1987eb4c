"""Readers of step-level sources: units, what is left out, and errors by file and line."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from validation.data import source_dir
from validation.sources import aiconfigurator, gpullm, llmservingsim_v0, splitwise, vidur

DENSE = (
    *llmservingsim_v0.PER_LAYER,
    *llmservingsim_v0.DENSE_MLP,
    *llmservingsim_v0.ONCE,
    *llmservingsim_v0.HEAD,
    *llmservingsim_v0.OWN_ATTENTION,
)


def write(path: Path, header: str, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def v0_folder(root: Path) -> Path:
    return root / "profiler/v0/perf_models/A6000/meta-llama/Llama-3.1-8B/tp1"


def write_v0(root: Path, change: Callable[[str], str] = str) -> None:
    """Two numbers of tokens, two chunks, three decode batches."""
    rows = [f"{layer},{n},0,1,{1000 * n}" for layer in DENSE for n in (1, 2)]
    header = ",".join(llmservingsim_v0.LAYER_COLUMNS)
    write(v0_folder(root) / "layers.csv", header, *(change(row) for row in rows))
    header = ",".join(llmservingsim_v0.ATTENTION_COLUMNS)
    attention = [
        "0.004,,32,8,1,1,32,64,True",
        "0.006,,32,8,1,1,32,64,True",
        ",0.020,32,8,1,4,0,2048,False",
        ",0.002,32,8,1,64,0,32,False",
    ]
    write(v0_folder(root) / "attention.csv", header, *(change(row) for row in attention))


def test_v0_layers_are_ns_and_attention_is_ms(tmp_path: Path) -> None:
    write_v0(tmp_path)
    profile = llmservingsim_v0.read_profile(tmp_path, "A6000", "Llama-3.1-8B", 1)
    assert list(profile.tokens) == [1, 2]
    assert list(profile.sum_us(("q_proj", "k_proj"))) == [2, 4]  # µs
    assert not profile.is_moe
    attention = profile.attention
    assert attention is not None
    # a point measured twice is its median; 64 decodes of 32 tokens together are none
    chunks = (attention.chunk, attention.past, attention.chunk_us)
    assert [list(column) for column in chunks] == [[32], [64], [5]]
    decodes = (attention.seqs, attention.kv_tokens, attention.decode_us)
    assert [list(column) for column in decodes] == [[4], [2048], [20]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("o_proj,2", "o_prj,2", r"layers.csv:\d+: unknown layer 'o_prj'"),
        ("o_proj,2", "o_proj,1", r"layers.csv:\d+: second row of o_proj at input=1"),
        ("o_proj,2,0,1", "o_proj,2,0,2", r"layers.csv:\d+: tp_size=2 in a table of tp_size=1"),
        ("o_proj,2,0,1,2000", "o_proj,2,0,1,0", r"latency\(ns\)=0: a kernel takes some time"),
        ("2048,False", "2048,no", r"attention.csv:4: is_prefill='no' is no truth value"),
        (",0.020,", ",x,", r"attention.csv:4: time_stats.attn_decode.median='x' is not a number"),
    ],
)
def test_v0_errors_name_file_and_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    write_v0(tmp_path, lambda row: row.replace(old, new))
    with pytest.raises(TraceError, match=message):
        llmservingsim_v0.read_profile(tmp_path, "A6000", "Llama-3.1-8B", 1)


def test_v0_choices_are_the_folders_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"no profiler/v0/perf_models in"):
        llmservingsim_v0.read_profile(tmp_path, "A6000", "Llama-3.1-8B", 1)
    write_v0(tmp_path)
    with pytest.raises(UnknownChoiceError, match=r"did you mean 'A6000'"):
        llmservingsim_v0.read_profile(tmp_path, "A600", "Llama-3.1-8B", 1)
    with pytest.raises(UnknownChoiceError, match=r"unknown tp profiled.*known: 1"):
        llmservingsim_v0.read_profile(tmp_path, "A6000", "Llama-3.1-8B", 4)


SPLITWISE = ",".join(splitwise.COLUMNS)


def test_splitwise_takes_medians_and_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    write(
        tmp_path / splitwise.FILE,
        SPLITWISE,
        "llama2-70b,h100-80gb,8,512,2,128,70,30,4000",
        "llama2-70b,h100-80gb,8,512,2,128,90,36,4100",
        "llama2-70b,h100-80gb,8,512,2,128,80,31,4050",
        "llama2-70b,h100-80gb-pcap,8,512,2,128,104,31,4050",
        "llama2-70b,h100-80gb,2,512,64,128,360,42,83891",
        "llama2-70b,h100-80gb,8,512,1,1024,76,31,26210",
    )
    (cell,) = splitwise.read_cells(tmp_path)
    assert cell == splitwise.Cell("llama2-70b", "h100-80gb", 8, 512, 2, 128, 80, 31)


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (SPLITWISE, "m,h,8,512,2,128,fast,30,4000", r"perf_model.csv:2: prompt_time='fast' is not"),
        (SPLITWISE, "m,h,8,512,2,128,70,0,4000", r"perf_model.csv:2: token_time=0: a kernel"),
        (SPLITWISE, "m,h,8,512,0,128,70,30,4000", r"perf_model.csv:2: sizes must be 1 or more"),
        (SPLITWISE, "m,h,8,512,2,128,70,30,4", r"prompt_time is above e2e_time: all are ms"),
        (SPLITWISE.replace("token_time", "token_ms"), "", r":1: no column token_time in .*in ms\)"),
    ],
)
def test_splitwise_errors_name_the_line(
    tmp_path: Path, header: str, row: str, message: str
) -> None:
    write(tmp_path / splitwise.FILE, header, row)
    with pytest.raises(TraceError, match=message):
        splitwise.read_cells(tmp_path)


MLP = ",".join([*(f"time_stats.{op}.median" for op in vidur.OPERATORS), vidur.TOKENS, vidur.RANKS])


def test_vidur_operators_are_sorted_and_of_one_tp(tmp_path: Path) -> None:
    row = ",".join(["0.5"] * len(vidur.OPERATORS))
    path = tmp_path / vidur.COMPUTE / "h100" / "meta-llama" / "Llama-2-7b-hf" / "mlp.csv"
    write(path, MLP, f"{row},64,1", f"{row.replace('0.5', '0.25')},8,1", f"{row},8,2")
    found = vidur.read_operators(tmp_path, "h100", "Llama-2-7b-hf", 1)
    assert list(found.tokens) == [8, 64]
    assert list(found.us["mlp_up_proj"]) == [250, 500]  # ms in, µs out
    with pytest.raises(UnknownChoiceError, match=r"unknown tp profiled.*'4'"):
        vidur.read_operators(tmp_path, "h100", "Llama-2-7b-hf", 4)
    write(path, MLP, f"{row},8,1", f"{row.replace('0.5', '0.25')},8,1")
    assert vidur.read_operators(tmp_path, "h100", "Llama-2-7b-hf", 1).us["add"] == [375]
    write(path, MLP, f"{row},eight,1")
    with pytest.raises(TraceError, match=r"mlp.csv:2: num_tokens='eight' is not a number"):
        vidur.read_operators(tmp_path, "h100", "Llama-2-7b-hf", 1)


def test_vidur_all_reduces_are_those_within_a_machine(tmp_path: Path) -> None:
    header = ",".join(vidur.ALL_REDUCE_COLUMNS)
    path = tmp_path / vidur.NETWORK / "h100_dgx" / "all_reduce.csv"
    rows = ["0.08,4,4096,all_reduce,4", "0.04,4,2048,all_reduce,4", "0.9,4,2048,all_reduce,2"]
    write(path, header, *rows)
    found = vidur.read_all_reduces(tmp_path, "h100_dgx", 4)
    assert (list(found.size_bytes), list(found.us)) == ([2048, 4096], [40, 80])
    with pytest.raises(UnknownChoiceError, match=r"unknown ranks profiled on h100_dgx '8'"):
        vidur.read_all_reduces(tmp_path, "h100_dgx", 8)
    write(path, header, "0.08,4,4096,all_gather,4")
    with pytest.raises(TraceError, match=r"collective='all_gather' is no all_reduce"):
        vidur.read_all_reduces(tmp_path, "h100_dgx", 4)


def test_gpullm_steps_and_their_periods(tmp_path: Path) -> None:
    path = write(tmp_path / "steps.csv", "timestamp_s,scheduler_time_s", "10.0,0.0001", "10.5,2e-5")
    steps = gpullm.read_steps(path)
    assert list(steps.period_s) == [0.5]
    assert steps.scheduler_us == pytest.approx([100, 20])
    write(path, "timestamp_s,scheduler_time_s", "10.0,0.0001", "9.5,2e-5")
    with pytest.raises(TraceError, match=r"steps.csv:3: time stamps run backwards"):
        gpullm.read_steps(path)


def test_gpullm_runs_may_lack_the_engines_log(tmp_path: Path) -> None:
    header = ",".join(gpullm.RUN_COLUMNS)
    write(
        tmp_path / gpullm.RUNS,
        header,
        "llama,output,a,50,4096,114.2,5.0,100.0,57456,13.43,334944,13.38,98.8",
        "llama,output,b,50,4096,465.1,5.0,400.02,230026,14.04,,,",
    )
    known, unknown = gpullm.read_runs(tmp_path)
    assert (known.kv_tokens, known.step_period_ms, known.scheduler_us) == (334944, 13.38, 98.8)
    assert (unknown.kv_tokens, unknown.step_period_ms) == (None, None)
    assert unknown.reply_tokens == 400
    write(tmp_path / gpullm.RUNS, header, "llama,ouput,a,50,1,1,5,1,1,1,,,")
    with pytest.raises(TraceError, match=r":2: phase='ouput' must be input or output"):
        gpullm.read_runs(tmp_path)


def test_gpullm_benchmarks_are_checked(tmp_path: Path) -> None:
    tree = dict.fromkeys(gpullm.BENCHMARK_KEYS, 3)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(tree))
    assert gpullm.read_benchmark(path).completed == 3
    path.write_text(json.dumps(tree | {"duration": None}))
    with pytest.raises(TraceError, match=r"run.json: duration=None must be a number"):
        gpullm.read_benchmark(path)
    path.write_text("{")
    with pytest.raises(TraceError, match=r"run.json:1: is no JSON"):
        gpullm.read_benchmark(path)


def data(source: str) -> Path:
    try:
        return source_dir(source)
    except MissingDataError as missing:
        pytest.skip(str(missing))


def test_v0_profile_as_published() -> None:
    profile = llmservingsim_v0.read_profile(data("llmservingsim"), "A6000", "Llama-3.1-8B", 1)
    assert profile.tokens[0] == 1
    rows = profile.attention
    assert rows is not None
    # the KV of a decode batch is that of the whole batch: 64 decodes take less than one of as much
    some = rows.kv_tokens == 4096
    many, one = (some & (rows.seqs == n) for n in (64, 1))
    assert rows.decode_us[many].max() < rows.decode_us[one].min()


def test_splitwise_as_published() -> None:
    cells = splitwise.read_cells(data("splitwise-sim"))
    assert {cell.hardware for cell in cells} == {"a100-80gb", "h100-80gb"}
    assert not [cell for cell in cells if (cell.tp, cell.batch) == (2, 64)]


def test_vidur_as_published() -> None:
    root = data("vidur")
    for path in sorted((root / vidur.COMPUTE).glob("*/*/*/mlp.csv")):
        gpu, _, model, _ = path.relative_to(root / vidur.COMPUTE).parts
        assert vidur.read_operators(root, gpu, model, 1).tokens[0] >= 1
    for path in sorted((root / vidur.NETWORK).glob("*/all_reduce.csv")):
        found = vidur.read_all_reduces(root, path.parent.name, 2)
        assert found.us[-1] > 5 * found.us[0]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_aiconfigurators_all_reduces_are_of_elements(ranks: int) -> None:
    # 32 Mi elements of bf16 are 64 MiB, which another source measured on the same kind of machine
    place = aiconfigurator.Place(data("aiconfigurator"), "h100_sxm", "sglang", None)
    sums = place.all_reduce(graph=False).where(num_gpus=ranks, message_size=2**25)
    other = vidur.read_all_reduces(data("vidur"), "h100_dgx", ranks)
    (as_large,) = other.us[other.size_bytes == 2**26]
    assert sums.us == pytest.approx(as_large, rel=0.1)


def test_gpullm_as_published() -> None:
    root = data("gpullm-adapter")
    runs = {(run.model, f"{run.phase}__{run.run}"): run for run in gpullm.read_runs(root)}
    for path in sorted((root / "raw_json").glob("*.json")):
        model, _, name = path.stem.partition("__")
        phase, _, rest = name.partition("___")
        benchmark = gpullm.read_benchmark(path)
        run = runs[model, f"{phase}___{rest}"]
        assert run.duration_s == pytest.approx(benchmark.duration_s)
        assert run.num_prompts == benchmark.num_prompts
    (path,) = root.glob("steps_*.csv")
    steps = gpullm.read_steps(path)
    assert np.median(steps.period_s) > np.median(steps.scheduler_us) / 1e6
