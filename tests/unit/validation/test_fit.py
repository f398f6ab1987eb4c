"""The fit on a profile that the test writes in the source's format, from formulas it knows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servesim.cost.fitted import Fitted
from servesim.errors import MissingDataError, SettingError, TraceError, UnknownChoiceError
from servesim.records import StepPlan, Work
from servesim.units import PS_PER_S
from validation.fit.__main__ import main
from validation.fit.sources.llmservingsim import Fit, Request, fit
from validation.fit.targets import deployment

TOKENS = [1, 2, 4, 8, *range(16, 2049, 16)]
ROWS = [1, 2, 4, 8, 16, 32, 64, 96, 128]
POWERS = [16 * 4**i for i in range(5)]  # 16 .. 4096
HOST_US = 400.0
REQUEST = Request("RTX4090", "Llama-3.1-8B", host_step_us=HOST_US)
PER_LAYER = ["qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj"]


def wobble(*at: int) -> float:
    """±2 %, the same in every run; stands for the noise of a measurement."""
    return 1 + 0.02 * ((7919 * sum(at) % 101) / 50 - 1)


def dense_us(tokens: int) -> float:
    return float((480**2 + (2.7 * tokens) ** 2) ** 0.5)


def decode_us(n: int, kv: int) -> float:
    return 12 + 0.1 * n + 0.0045 * n * kv


def mixed_us(chunk: int, past: int, n: int, kv: int) -> float:
    tiles = -(-chunk // 64)
    task = 6 + 0.032 * max(past + chunk, kv)
    total = 2.5 * tiles + 0.007 * tiles * (past + chunk / 2) + 1.4 * n + 0.0075 * n * kv
    return max(decode_us(n, kv) if n else 0.0, task, total + 0.45 * task)


def write_csv(path: Path, header: str, rows: list[list[Any]]) -> None:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def attention_rows() -> list[list[Any]]:
    rows: list[list[Any]] = []
    for n in (0, 1, 4, 16, 64, 128):
        for kv in POWERS if n else [0]:
            if n:
                rows.append([0, 0, n, kv, decode_us(n, kv) * wobble(n, kv)])
            for chunk in (16, 64, 256, 1024):
                for past in (0, *POWERS):
                    us = mixed_us(chunk, past, n, kv) * wobble(chunk, past, n, kv)
                    rows.append([chunk, past, n, kv, us])
    return rows


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the source lays it out."""
    root = tmp_path_factory.mktemp("data") / "llmservingsim"
    model = root / "profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16"
    folder = model / "tp1"
    folder.mkdir(parents=True)
    meta = {"model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.0"}
    (model / "meta.yaml").write_text(
        yaml.safe_dump({**meta, "engine_effective": {"gpu_memory_utilization": 0.9}})
    )
    # two norms per layer: an eighth of the layer each time, as every other part
    dense = [[k, t, dense_us(t) / 8 * wobble(t)] for k in (*PER_LAYER, "layernorm") for t in TOKENS]
    dense += [[k, t, 3 + 0.004 * t] for k in ("embedding", "final_layernorm") for t in TOKENS]
    write_csv(folder / "dense.csv", "layer,tokens,time_us", dense)
    head = [["lm_head", r, 1100 + r] for r in ROWS] + [["sampler", r, 25 + r / 2] for r in ROWS]
    write_csv(folder / "per_sequence.csv", "layer,sequences,time_us", head)
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    write_csv(folder / "attention.csv", header, attention_rows())
    skew = [
        [
            n,
            1,
            0,
            0,
            4 * kv,
            kv * (1 + 3 / n),
            3 * decode_us(n, kv),
            3 * decode_us(n, 4 * kv),
            4 / n,
        ]
        for n in (16, 32, 64, 128)
        for kv in POWERS[1:4]
    ]
    write_csv(folder / "skew.csv", "n,nb,pc,kp,kv_big,kv_mean,t_mean_us,t_max_us,alpha", skew)
    return root


@pytest.fixture(scope="module")
def fitted(root: Path) -> Fit:
    return fit(root, REQUEST)


def test_held_out_errors_are_about_the_noise(fitted: Fit) -> None:
    errors = {part.name: part.summary() for part in fitted.errors}
    assert errors["step"]["points"] > 50
    for part, most in (("dense_layers", 0.03), ("decode_step", 0.02), ("step", 0.02)):
        assert errors[part]["median"] < most, part
    assert errors["step"]["p90"] < 0.05
    assert abs(errors["step"]["mean_signed"]) < 0.02


def test_known_coefficients_are_recovered(fitted: Fit) -> None:
    coefficients = fitted.tree["coefficients"]
    decode, mixed = coefficients["decode_attention"], coefficients["mixed_attention"]
    per_kv = decode["us_per_kv_token"]
    assert per_kv == pytest.approx(0.0045, rel=0.03)
    assert decode["whole_from_seqs"] == 26  # 1.6 × 128 multiprocessors ÷ 8 KV heads = 25.6
    assert decode["us_per_uneven_token"] == pytest.approx(4 * per_kv, rel=0.001)
    assert mixed["task_us_per_kv_token"] == pytest.approx(0.032, rel=0.05)
    assert mixed["us_per_tile_kv_token"] == pytest.approx(0.007, rel=0.1)
    assert coefficients["once"]["us_per_token"] == pytest.approx(0.008, rel=0.01)
    assert coefficients["host"] == {"us": 400, "us_per_seq": 0}


def test_the_range_of_the_fit_is_what_was_measured(fitted: Fit) -> None:
    ranges = dict(fitted.tree["fit_range"])
    _, most_kv_tokens = ranges.pop("kv_tokens")
    assert ranges == {
        "tokens": [1, 2048],
        "sampled_rows": [1, 128],
        "decode_seqs": [1, 128],
        "longest_decode_context": [16, 4096],
        "longest_prefill_context": [16, 4096 + 1024],
        "prefill_past": [0, 4096],
    }
    # the largest batch of the grid within twice the KV that fits beside the weights on 24 GB
    assert 64 * 1024 < most_kv_tokens < 128 * 1024


def test_the_yaml_is_the_cost(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVESIM_DATA", str(root.parent))
    out, plot = tmp_path / "cost.yaml", tmp_path / "cost.png"
    wanted = ["source=llmservingsim", "gpu=RTX4090", "model=Llama-3.1-8B", "host_step_us=400"]
    assert main([*wanted, f"out={out}", f"plot={plot}"]) == 0
    assert out.read_text().startswith("# python -m validation.fit source=llmservingsim gpu=RTX4090")
    tree = yaml.safe_load(out.read_text())
    assert tree.pop("_target_") == "servesim.cost.fitted.Fitted"
    assert tree.pop("_convert_") == "all"
    assert tree["source"]["files"] == "profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1"
    target = deployment("RTX4090", "Llama-3.1-8B", 1)
    timer = Fitted(**tree).bind(target)
    work = tuple(Work(i, 1, 255, 0, True) for i in range(16))
    truth = 32 * (dense_us(16) + decode_us(16, 256)) + 1100 + 16 + 25 + 8 + 6.1 + HOST_US
    assert timer.step_time(StepPlan(work)).duration_ps / 1e6 == pytest.approx(truth, rel=0.03)
    assert plot.stat().st_size > 10_000


def test_host_time_is_recovered_from_the_end_of_a_run(root: Path, fitted: Fit) -> None:
    """Six requests, decodes only: stamps from the kernels and 400 µs of host time per step."""
    prompts, replies = (40, 900, 300, 2000, 64, 700), (30, 200, 90, 150, 260, 220)
    done, clock, rows = [1] * 6, 100.0, []
    stamps = [clock] * 6
    while any(n < reply for n, reply in zip(done, replies, strict=True)):
        alive = [i for i in range(6) if done[i] < replies[i]]
        work = tuple(Work(i, 1, prompts[i] + done[i] - 1, 0, True) for i in alive)
        clock += fitted.timer.step_time(StepPlan(work)).duration_ps / PS_PER_S + HOST_US / 1e6
        for i in alive:
            done[i], stamps[i] = done[i] + 1, clock
    for i in range(6):
        first = 100.0 - 0.001 * (i != 4)  # the fifth is the last to get its first token
        row = {"input_toks": prompts[i], "output_toks": replies[i], "queued_ts": 99.0}
        rows.append({**row, "first_token_ts": first, "last_token_ts": stamps[i]})
    run = root / "bench/examples/RTX4090/Llama-3.1-8B/vllm"
    run.mkdir(parents=True)
    (run / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    derived = fit(root, Request("RTX4090", "Llama-3.1-8B")).tree
    assert derived["coefficients"]["host"]["us"] == pytest.approx(HOST_US, abs=5)
    assert "last 259 steps, decodes only, 6 sequences falling to 1" in derived["source"]["host"]


def edited(root: Path, tmp_path: Path, name: str, change: Callable[[str], str]) -> Path:
    """A copy of the profile with one file changed."""
    for path in (root / "profiler").rglob("*"):
        if path.is_dir():
            continue
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(change(path.read_text()) if path.name == name else path.read_text())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("dense.csv", "time_us", "time_ms", r"dense.csv:1: no column time_us"),
        ("dense.csv", "o_proj,2,", "o_prj,2,", r"dense.csv:\d+: unknown layer 'o_prj'"),
        ("dense.csv", "o_proj,2,", "o_proj,1,", r"dense.csv:\d+: second row of o_proj at tokens=1"),
        ("attention.csv", "\n0,0,1,16,", "\n0,0,1,16,-", r"attention.csv:26: time_us=-.* negative"),
        ("attention.csv", "\n0,0,1,16,", "\n0,0,one,16,", r"attention.csv:26: n_decode='one'"),
        (
            "per_sequence.csv",
            "sampler",
            "smplr",
            r"per_sequence.csv: must hold lm_head and sampler",
        ),
        ("meta.yaml", "vllm_version", "version", r"meta.yaml: has no 'vllm_version'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_by_line(
    root: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        fit(edited(root, tmp_path, name, lambda text: text.replace(old, new)), REQUEST)


def test_what_the_profile_lacks_must_be_given(root: Path, tmp_path: Path) -> None:
    copy = edited(root, tmp_path, "", str)
    with pytest.raises(SettingError, match=r"host_step_us=None: must be given.*no measured run"):
        fit(copy, Request("RTX4090", "Llama-3.1-8B"))
    with pytest.raises(UnknownChoiceError, match=r"unknown tp profiled .* '2'.*known: 1"):
        fit(copy, Request("RTX4090", "Llama-3.1-8B", tp=2))
    with pytest.raises(SettingError, match=r"all_reduce_us=5: has no meaning for tp=1"):
        fit(copy, Request("RTX4090", "Llama-3.1-8B", host_step_us=1, all_reduce_us=5))
    with pytest.raises(MissingDataError, match=r"no profiler/perf in"):
        fit(tmp_path / "bench", REQUEST)
