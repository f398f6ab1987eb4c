"""The fit of older profiles on tables that the test writes from rates it knows."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from servesim.cost.kernels import Kernels
from servesim.errors import MissingDataError, SettingError
from servesim.records import Decodes, StepPlan, Work
from servesim.units import PS_PER_US
from validation.data import source_dir
from validation.fit.__main__ import parse, request_of
from validation.fit.result import Fit
from validation.fit.sources import llmservingsim_v0
from validation.fit.sources.llmservingsim_v0 import Request, fit
from validation.fit.targets import CONF, named_deployment
from validation.sources import llmservingsim_v0 as source

TOKENS = [1, *range(8, 2049, 8)]
LAUNCH_US, SHARE, LEAST = 5.0, 0.8, 40
# A6000: 768 GB/s; 32 query heads read 128 keys and values of 2 bytes each
US_PER_TOKEN = 32 * 128 * 4 / 768e3 / SHARE
NORMS = ("input_layernorm", "post_layernorm", "rope", "act_fn", "embedding", "final_layernorm")


def layer_us(layer: str, tokens: int) -> float:
    if layer in NORMS:
        return 5 + 0.02 * tokens
    return (900.0 if layer == "lm_head" else 60.0) + 0.2 * tokens


def own_us(tokens: int) -> float:
    return LAUNCH_US + 1e-4 * tokens * tokens / 2


def decode_us(seqs: int, kv_tokens: int) -> float:
    return LAUNCH_US + US_PER_TOKEN * max(kv_tokens, LEAST * seqs)


def chunk_us(chunk: int, past: int) -> float:
    return LAUNCH_US + max(0.03, 1e-4 * chunk) * past


def write(gpu: str, root: Path, *, attention: bool) -> None:
    folder = root / source.FOLDER / gpu / "meta-llama/Llama-3.1-8B/tp1"
    folder.mkdir(parents=True)
    names = (*source.PER_LAYER, *source.DENSE_MLP, *source.ONCE, *source.HEAD)
    rows = [f"{k},{n},0,1,{1e3 * layer_us(k, n):.0f}" for k in names for n in TOKENS]
    rows += [f"attn,{n},0,1,{1e3 * own_us(n):.0f}" for n in TOKENS]
    (folder / "layers.csv").write_text("\n".join([",".join(source.LAYER_COLUMNS), *rows]))
    if not attention:
        return
    rows = [",".join(source.ATTENTION_COLUMNS)]
    for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256):
        for kv in range(1024, 65537, 2048):
            rows.append(f",{decode_us(n, kv) / 1e3},32,8,1,{n},0,{kv},False")
    for chunk in (32, 64, 128, 256, 512, 1024):
        for past in range(chunk, 2048, chunk):
            rows.append(f"{chunk_us(chunk, past) / 1e3},,32,8,1,1,{chunk},{past},True")
    (folder / "attention.csv").write_text("\n".join(rows))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "llmservingsim"
    write("A6000", root, attention=True)
    write("RTX3090", root, attention=False)
    return root


@pytest.fixture(scope="module")
def fitted(root: Path) -> Fit:
    return fit(root, Request("A6000", "Llama-3.1-8B", host_step_us=100))


def us(done: Fit, hardware: str, *work: Work, decodes: Decodes | None = None) -> float:
    cost = Kernels(**{k: v for k, v in done.tree.items() if not k.startswith("_")})
    timer = cost.bind(named_deployment(hardware, "meta-llama/Llama-3.1-8B", 1))
    plan = StepPlan(work, decodes=decodes) if decodes else StepPlan(work)
    return timer.step_time(plan).duration_ps / PS_PER_US


def rest_us(tokens: int, rows: int) -> float:
    """A step but for its attention."""
    per_layer = sum(layer_us(k, tokens) for k in (*source.PER_LAYER, *source.DENSE_MLP))
    once = sum(layer_us(k, tokens) for k in source.ONCE)
    return 32 * per_layer + once + layer_us("lm_head", rows) + 100


def test_decodes_read_kv_once_where_the_profile_read_it_for_every_query_head(fitted: Fit) -> None:
    seqs, context = 64, 1000
    attention = LAUNCH_US + US_PER_TOKEN / 4 * seqs * context  # 4 query heads per KV head
    expected = rest_us(seqs, seqs) + 32 * attention
    found = us(fitted, "rtx_a6000", decodes=Decodes(seqs, seqs * context, context))
    assert found == pytest.approx(expected, rel=0.01)


def test_a_chunk_attends_to_itself_and_to_its_past(fitted: Fit) -> None:
    work = Work(0, 512, 1024, 0, True)
    attention = own_us(512) + 1e-4 * 512 * 1024
    assert us(fitted, "rtx_a6000", work) == pytest.approx(
        rest_us(512, 1) + 32 * attention, rel=0.01
    )


def test_held_out_errors_are_small_on_exact_tables(fitted: Fit) -> None:
    errors = {part.name: part.summary() for part in fitted.errors}
    assert errors["decode_step"]["points"] > 50
    for part in ("dense_layers", "lm_head", "decode_attention", "decode_step", "prefill_step"):
        assert errors[part]["median"] < 0.01, part
    assert fitted.errors[-1].name == "step"


def test_decodes_may_be_borrowed_from_the_same_architecture(root: Path) -> None:
    request = Request(
        "RTX3090", "Llama-3.1-8B", host_step_us=100, attention_from="A6000/Llama-3.1-8B/tp1"
    )
    done = fit(root, request)
    per_token = US_PER_TOKEN / 4 * 768 / 936  # the same share of its own bandwidth
    found = us(done, "rtx_3090", decodes=Decodes(64, 64_000, 1000))
    expected = rest_us(64, 64) + 32 * (LAUNCH_US + per_token * 64_000)
    assert found == pytest.approx(expected, rel=0.01)
    assert done.tree["source"]["attention"].endswith("A6000/meta-llama/Llama-3.1-8B/tp1")


def test_what_the_profile_lacks_must_be_given(root: Path) -> None:
    with pytest.raises(SettingError, match=r"attention_from=None: must be given: .*RTX3090"):
        fit(root, Request("RTX3090", "Llama-3.1-8B", host_step_us=0))
    with pytest.raises(SettingError, match=r"attention_from='A6000': must be GPU/model/tpN"):
        fit(root, Request("RTX3090", "Llama-3.1-8B", host_step_us=0, attention_from="A6000"))
    with pytest.raises(SettingError, match=r"all_reduce_us=None: must be given for tp > 1"):
        Request("A6000", "Llama-3.1-8B", host_step_us=0, tp=2)
    with pytest.raises(SettingError, match=r"link='NVLink': has no meaning for tp=1"):
        Request("A6000", "Llama-3.1-8B", host_step_us=0, link="NVLink")


def test_shipped_tables_come_from_their_command() -> None:
    try:
        root = source_dir(llmservingsim_v0.FOLDER)
    except MissingDataError as missing:
        pytest.skip(str(missing))
    text = (CONF / "cost" / "llama3.1_8b_rtx_a6000.yaml").read_text()
    command = text.splitlines()[0].removeprefix("# python -m validation.fit ")
    again, shipped = fit(root, request_of(parse(shlex.split(command)))).tree, yaml.safe_load(text)
    assert again["fit_range"] == shipped["fit_range"]
    for part in ("dense", "head", "decode_attention", "prefill_attention"):
        for axis, values in shipped["tables"][part].items():
            # another solver version may stop at a slightly different point
            made = np.array(again["tables"][part][axis])
            assert made == pytest.approx(np.array(values), rel=0.02, abs=1e-3), f"{part}.{axis}"
