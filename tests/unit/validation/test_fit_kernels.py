"""Kernel tables of a model from kernels that the test writes, by formulas that it knows."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from servesim.cost.kernels import Kernels
from servesim.errors import MissingDataError, SettingError, TraceError, UnknownChoiceError
from validation.data import source_dir
from validation.fit.__main__ import main
from validation.fit.batch import OUT, PLAN, planned
from validation.fit.kernels import calibration, deployments, graphs, grids
from validation.fit.kernels.attention import Calls, prefill
from validation.fit.kernels.places import Places
from validation.fit.kernels.shapes import Heads, shapes_of
from validation.fit.sources.aiconfigurator import Request, fit
from validation.sources.aiconfigurator import Place, nearest_version

ROWS = [1, 2, 4, 8, 16, 64, 256, 1024, 4096, 8192]
WIDTHS = [256, 1024, 4096, 8192, 16384, 65536]
LENGTHS = [1, 16, 64, 256, 1024, 2048, 4096, 8192, 16384]
CONTEXTS = [2, 16, 128, 1024, 8192]
PAIRS = [(1, 1), (4, 1), (8, 2), (16, 4), (32, 8), (24, 4)]
LAYERS = 32
SLOWDOWN = 1.25  # of a product, against the peaks of the data sheet


def product_us(m: float, n: float, k: float) -> float:
    """H100: 3,350 GB/s, 989.4 TFLOP/s."""
    num_bytes = 2 * (n * k + m * n + m * k)
    return SLOWDOWN * max(num_bytes / 3.35e6, 2 * m * n * k / 989.4e6)


def prompt_us(batch: float, tokens: float, heads: float) -> float:
    return 10 + 1e-6 * batch * heads * tokens * tokens / 2


def decode_us(batch: float, context: float, kv_heads: float) -> float:
    return 8 + 2e-4 * batch * context * kv_heads


def all_reduce_us(elements: float) -> float:
    return 5 + elements / 5e4


def write(root: Path, op: str, name: str, rows: list[dict[str, object]], version: str) -> Path:
    path = root / "data" / "h100_sxm" / op / "vllm" / version / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)
    return path


def write_source(root: Path, version: str = "0.14.0") -> None:
    gemm = [
        {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": product_us(m, n, k) / 1e3}
        for m, n, k in product(ROWS, WIDTHS, WIDTHS)
    ]
    write(root, "gemm", "gemm_perf", gemm, version)
    same = {"head_dim": 128, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    prompts = [
        same
        | {"batch_size": b, "isl": s, "num_heads": h, "num_key_value_heads": kv, "step": 0}
        | {"latency": prompt_us(b, s, h) / 1e3}
        for b, s, (h, kv) in product([1, 2, 4, 8], LENGTHS, PAIRS)
    ]
    write(root, "attention", "context_attention_perf", prompts, version)
    decodes = [
        same
        | {"batch_size": b, "isl": 1, "num_heads": h, "num_key_value_heads": kv, "step": c - 1}
        | {"latency": decode_us(b, c, kv) / 1e3}
        for b, c, (h, kv) in product([1, 2, 4, 8, 64], CONTEXTS, PAIRS)
    ]
    write(root, "attention", "generation_attention_perf", decodes, version)
    sums = [
        {"allreduce_dtype": "bfloat16", "num_gpus": g, "message_size": 2**i, "backend": kind}
        | {"latency": (all_reduce_us(2**i) + (20 if kind == "vllm_eager" else 0)) / 1e3}
        for g, i, kind in product([2, 4], range(7, 28), ["vllm_graph", "vllm_eager"])
    ]
    write(root, "comm", "custom_allreduce_perf", sums, version)
    (root / "systems").mkdir(exist_ok=True)
    (root / "systems" / "h100_sxm.yaml").write_text("gpu: {sm_version: 90}\n")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aiconfigurator")
    write_source(folder)
    return folder


@pytest.fixture(scope="module")
def fitted(root):
    return fit(root, Request("h100_sxm", "llama3.1_8b", engine_version="0.12.0"))


def test_dense_is_the_products_at_the_models_own_shapes(fitted):
    # qkv 32 + 2 × 8 heads of 128; gate and up together; none of the four was measured but o_proj
    shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    dense = fitted.tree["tables"]["dense"]
    assert dense["tokens"] == ROWS
    for m, us in zip(dense["tokens"], dense["us"], strict=True):
        products = LAYERS * sum(product_us(m, n, k) for n, k in shapes)
        # 2 norms (4 hidden), rotary (2 × 40 heads), activation (3 × 14336) per layer; embedding
        # and final norm; 2 bytes each, a launch of 2.5 µs each
        elements = LAYERS * (2 * 4 * 4096 + 2 * 5120 + 3 * 14336) + 2 * 4096 + 4 * 4096
        others = (4 * LAYERS + 2) * 2.5 + m * 2 * elements / 3.35e6
        assert us == pytest.approx(products + others, rel=2e-3)


def test_head_is_a_product_and_the_sampler(fitted):
    head = fitted.tree["tables"]["head"]
    sampler = 20 + 7 * 64 * 128256 / 3.35e6
    assert head["us"][head["rows"].index(64)] == pytest.approx(
        product_us(64, 128256, 4096) + sampler, rel=2e-3
    )


def test_attention_of_decodes_is_that_of_all_layers(fitted):
    table = fitted.tree["tables"]["decode_attention"]
    assert table["context"] == CONTEXTS
    us = table["us"][table["seqs"].index(4)][CONTEXTS.index(1024)]
    assert us == pytest.approx(LAYERS * decode_us(4, 1024, 8), rel=1e-3)


def test_a_chunk_on_a_past_costs_its_pairs_of_tokens(fitted):
    table = fitted.tree["tables"]["prefill_attention"]
    us = table["us"][table["chunk"].index(1024)][table["past"].index(4096)]
    pairs = 1024 * 1024 / 2 + 1024 * 4096
    assert us == pytest.approx(LAYERS * (10 + 1e-6 * 32 * pairs), rel=1e-3)


def test_the_tables_make_a_cost_that_binds_and_its_reading_errs_little(fitted):
    cost = Kernels(**{k: v for k, v in fitted.tree.items() if not k.startswith("_")})
    target = deployments.deployment("h100_sxm", "llama3.1_8b", 1, "bf16", "bf16", "vllm")
    assert cost.mismatch(target) == ""
    cost.bind(target)
    assert fitted.tree["source"]["engine_version"] == "0.12.0"
    assert "vllm 0.14.0" in fitted.tree["source"]["measured_version"]
    errors = {part.name: part.summary() for part in fitted.errors}
    assert set(errors) == {"products", "decode_attention", "prefill_attention", "step"}
    assert errors["products"]["worst"] < 1e-6  # the ratio to the ideal is flat
    assert errors["step"]["points"] > 0
    assert errors["step"]["median"] < 0.05


def test_all_reduces_are_in_a_graph_up_to_the_largest_one(root):
    done = fit(root, Request("h100_sxm", "llama3.1_8b", tp=2))
    table = done.tree["tables"]["all_reduce"]
    for tokens, extra in ((64, 0), (512, 0), (513, 20), (8192, 20)):
        us = table["us"][table["tokens"].index(tokens)]
        expected = (2 * LAYERS + 1) * (all_reduce_us(tokens * 4096) + extra)
        assert us == pytest.approx(expected, rel=0.03)
    with pytest.raises(SettingError, match="tp=8: was not measured"):
        fit(root, Request("h100_sxm", "llama3.1_8b", tp=8))


def test_a_twin_with_other_memory_reads_slower_or_faster_and_computes_alike(root):
    own = fit(root, Request("h100_sxm", "llama3_8b")).tree
    twin = fit(root, Request("gh200_96gb", "llama3_8b")).tree
    assert twin["fitted_on"]["gpu"] == "GH200 96GB"
    assert "measured on H100 SXM5" in twin["source"]["scaled"]
    assert "scaled" not in own["source"]
    # less by what its bytes take: the least of few rows; of many, element-wise kernels' alone
    shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    elements = LAYERS * (2 * 4 * 4096 + 2 * 5120 + 3 * 14336) + 2 * 4096 + 4 * 4096
    per_byte = 1 / 3.35e6 - 1 / 4e6
    ours, theirs = (np.array(tree["tables"]["dense"]["us"]) for tree in (own, twin))
    num_bytes = LAYERS * sum(2 * (n * k + n + k) for n, k in shapes) + 2 * elements
    assert ours[0] - theirs[0] == pytest.approx(per_byte * num_bytes, rel=5e-3)
    assert ours[-1] - theirs[-1] == pytest.approx(per_byte * 8192 * 2 * elements, rel=0.05)
    share = 3350 / 4000
    decode, there = (tree["tables"]["decode_attention"]["us"][2] for tree in (own, twin))
    assert there[0] == decode[0]
    assert there[-1] - there[0] == pytest.approx(share * (decode[-1] - decode[0]), rel=1e-3)
    assert twin["tables"]["prefill_attention"] == own["tables"]["prefill_attention"]


def test_a_window_that_was_not_measured_is_full_attention_up_to_it(root):
    full = fit(root, Request("h100_sxm", "llama3_8b")).tree["tables"]["decode_attention"]["us"]
    window = fit(root, Request("h100_sxm", "mistral_7b_v0.1")).tree["tables"]["decode_attention"]
    at = window["context"].index
    assert window["us"][0][: at(1024) + 1] == full[0][: at(1024) + 1]
    # a window of 4,096: two thirds of the way, in logarithms, between the measured contexts
    near, far = (decode_us(1, context, 8) for context in (1024, 8192))
    expected = LAYERS * near ** (1 / 3) * far ** (2 / 3)
    assert window["us"][0][at(8192)] == pytest.approx(expected, rel=1e-3)


def test_heads_that_were_not_measured(root):
    calls = Calls(Place(root, "h100_sxm", "vllm", None).decode_attention("bf16", 128, 0))
    # 32 query and 32 KV heads of a sequence are 1 and 1 of 32 sequences
    grid = calls.grid(32, 32)
    assert grid.seqs.tolist() == [1, 2]
    assert grid.us[1, CONTEXTS.index(128)] == pytest.approx(decode_us(64, 128, 1), rel=1e-6)
    # 20 query heads over 4 KV heads lie between 16 and 24, which take the same here
    grid = calls.grid(20, 4)
    assert grid.us[2, CONTEXTS.index(128)] == pytest.approx(decode_us(4, 128, 4), rel=1e-6)
    with pytest.raises(SettingError, match="'48/4': is not within the measured heads"):
        calls.grid(48, 4)


def test_without_split_kv_a_chunk_waits_for_one_tile_that_walks_all_of_it(root):
    calls = Calls(Place(root, "h100_sxm", "vllm", None).prefill_attention("bf16", 128, 0))
    split, unsplit = (prefill(calls, Heads(8, 2, 128, 0), splits_kv=s) for s in (True, False))
    chunk, past = np.array([1.0, 4096.0]), np.array([0.0, 8192.0])
    # one head's prompt: 1e-6 × (8192² − 2048²) / 2 more for 6144 tokens more
    per_step = 1e-6 * (8192**2 - 2048**2) / 2 / 6144
    assert unsplit.per_step == pytest.approx(per_step)
    assert (unsplit.at(chunk, past)[0] - split.at(chunk, past)[0]).tolist() == pytest.approx(
        [0, 8192 * (per_step - 8e-6)]
    )
    assert unsplit.at(chunk, past)[1] == pytest.approx(split.at(chunk, past)[1])


def test_the_nearest_release_is_read_and_the_later_of_two(tmp_path):
    for version in ("0.14.0", "0.18.0", "0.24.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "x.parquet").touch()
    asked = {"0.10.1.1": "0.14.0", "0.16.0": "0.18.0", "0.24": "0.24.0", "0.5.6.post2": "0.14.0"}
    assert {v: nearest_version(tmp_path, v, "x.parquet") for v in asked} == asked
    assert nearest_version(tmp_path, None, "x.parquet") == "0.24.0"
    with pytest.raises(MissingDataError, match=r"no y\.parquet"):
        nearest_version(tmp_path, None, "y.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="k"), r"gemm_perf\.parquet: has no column 'k'"),
        (lambda f: f.rename(columns={"latency": "latency_us"}), "has no column 'latency'"),
        (lambda f: f.assign(latency=-f.latency), "column 'latency', row 0: .* positive"),
        (lambda f: f.assign(m="many"), "column 'm' does not hold numbers"),
    ],
)
def test_a_file_of_another_shape_is_refused_by_name_and_column(tmp_path, change, message):
    write_source(tmp_path)
    path = tmp_path / "data/h100_sxm/gemm/vllm/0.14.0/gemm_perf.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(TraceError, match=message):
        Place(tmp_path, "h100_sxm", "vllm", None).gemm("bf16")


def test_an_unknown_dtype_or_gpu_names_those_there_are(root):
    with pytest.raises(UnknownChoiceError, match="bfloat16"):
        Place(root, "h100_sxm", "vllm", None).gemm("fp8")
    with pytest.raises(UnknownChoiceError, match="h100_sxm"):
        fit(root, Request("h100", "llama3.1_8b"))
    latent = deployments.deployment("h100_sxm", "deepseek_v3", 8, "bf16", "bf16", "vllm")
    with pytest.raises(SettingError, match="no table"):
        shapes_of(latent)


def test_a_single_time_above_that_of_more_work_is_repaired():
    axis = np.array([1.0, 2, 4, 8])
    us = np.array([[10.0, 80, 40, 80], [10.0, 20, 41, 40], [10.0, 20, np.nan, 40]])
    repaired = grids.despiked(axis, us)
    assert repaired[0].tolist() == pytest.approx([10, 20, 40, 80])
    assert repaired[1].tolist() == us[1].tolist()  # within the noise
    assert np.isnan(repaired[2, 2])


def test_levelled_times_fall_along_no_axis():
    us = np.array([[1.0, 3, 2, np.nan], [2.0, 2, 5, 4]])
    level = grids.never_falling(us)
    # down, 3 and 2 become 2.5 both; then, along, 2.5 and 2, as well as 5 and 4
    assert level[0, :3].tolist() == [1, 2.25, 2.25]
    assert level[1].tolist() == [2, 2.5, 4.5, 4.5]
    assert np.isnan(level[0, 3])


def test_products_may_be_those_of_another_engine(tmp_path):
    row = {"gemm_dtype": "bfloat16", "m": 1, "n": 256, "k": 256, "latency": 0.01}
    for engine, version in (("vllm", "0.19.0"), ("vllm", "0.24.0"), ("trtllm", "1.2.0rc5")):
        path = tmp_path / "data" / "h100_sxm" / "gemm" / engine / version / "gemm_perf.parquet"
        path.parent.mkdir(parents=True)
        pd.DataFrame([row]).to_parquet(path)
    own = Place(tmp_path, "h100_sxm", "trtllm", "1.2.0rc5")
    assert "trtllm/1.2.0rc5" in Places(own).gemm("bf16").file
    assert "trtllm/1.2.0rc5" in Places(own, "0.19.0").gemm("bf16").file
    assert "vllm/0.19.0" in Places(own, "0.19.0", "vllm").gemm("bf16").file


def test_graph_sizes_of_engines():
    def sizes(engine: str, tp: int) -> tuple[int, ...]:
        target = deployments.deployment("h100_sxm", "llama3.1_70b", tp, "fp8", "bf16", engine)
        return graphs.sizes(target)

    assert sizes("vllm", 4)[:5] == (1, 2, 4, 8, 16)
    assert sizes("vllm", 4)[-1] == 512
    assert (sizes("sglang", 2)[-1], sizes("sglang", 4)[-1]) == (256, 512)
    assert (sizes("trtllm", 4)[:5], sizes("trtllm", 4)[-1]) == ((1, 2, 4, 8, 16), 128)


def test_calibration_of_a_gpu_goes_before_the_default(tmp_path):
    file = tmp_path / "calibration.yaml"
    entry = {"host": {"us": 600}, "fitted_from": "nothing"}
    own = {"host": {"us": 100, "exposed_us": 5}, "fitted_from": "runs"}
    file.write_text(yaml.safe_dump({"default": {"any": entry}, "l40s": {"vllm": own}}))
    host, origin = calibration.host_of("l40s", "vllm", file)
    assert (host["us"], host["exposed_us"], host["us_per_seq"]) == (100, 5, 0)
    assert origin.endswith("l40s.vllm: runs")
    assert calibration.host_of("l40s", "sglang", file)[0]["us"] == 600
    file.write_text(yaml.safe_dump({"default": {"any": {"host": {"ms": 1}, "fitted_from": ""}}}))
    with pytest.raises(TraceError, match=r"default\.any\.host\.ms"):
        calibration.host_of("l40s", "vllm", file)


def test_the_command_writes_it(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SERVESIM_DATA", str(root.parent))
    (root.parent / "aiconfigurator").symlink_to(root)
    out = tmp_path / "x.yaml"
    asked = ["source=aiconfigurator", "gpu=h100_sxm", "model=meta-llama/Llama-3.1-8B"]
    assert main([*asked, f"out={out}"]) == 0
    text = out.read_text()
    assert text.startswith(f"# python -m validation.fit {' '.join(asked)}\n")
    assert yaml.safe_load(text)["tables"]["moe"] is None
    assert main([*asked, "dtype=int7"]) == 2
    assert "dtype" in capsys.readouterr().err


def test_a_plan_is_all_its_models_and_ranks(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {source: aiconfigurator, gpu: a100_sxm, models: [qwen3_8b], tp: [1, 2]}\n")
    one, two = planned(plan)
    assert one.name == "vllm_a100_80gb_sxm_qwen3_8b_tp1_bf16"
    assert two.arguments == [
        *("source=aiconfigurator", "gpu=a100_sxm", "model=qwen3_8b", "tp=2"),
    ]
    plan.write_text("- {source: aiconfigurator, gpus: a100_sxm}\n")
    with pytest.raises(UnknownChoiceError, match="did you mean 'gpu'"):
        list(planned(plan))


def test_a_shipped_cost_is_made_again():
    """From the measurements, where they are; dates, host times and what they are from apart."""
    name = "vllm_a100_80gb_sxm_qwen3_8b_tp1_bf16"
    try:
        folder = source_dir("aiconfigurator")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    (asked,) = (one.request for one in planned(PLAN) if one.name == name)
    made = fit(folder, asked).tree
    shipped = yaml.safe_load((OUT / f"{name}.yaml").read_text())
    for part in ("fitted_on", "fit_range", "held_out_error", "tables", "graphs"):
        assert made[part] == shipped[part]
    assert made["source"]["files"] == shipped["source"]["files"]
