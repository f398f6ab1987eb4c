"""`servesim size`: what it answers, how it says so, and one line per mistake."""

import json
import re
from functools import lru_cache

import pytest

from servesim.__main__ import main
from servesim.app import size as command
from servesim.app.api import setup_from
from servesim.errors import CapacityError, ServesimError
from servesim.model.dtypes import DTYPE_BYTES

size = lru_cache(maxsize=None)(command.size)  # composing the configuration takes the time

BASE = ("model=llama3.1_8b", "hardware=h100_sxm", "max_model_len=32768")
KEYS = {
    *("weights_gib", "kv_bytes_per_token", "kv_cache_gib", "block_size", "num_gpu_blocks"),
    *("kv_cache_tokens", "max_concurrency", "engine_log", "warnings"),
}


def run(capsys, *arguments):
    code = main(("size", *arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_table_names_every_term(capsys):
    code, out, err = run(capsys, *BASE)
    assert (code, err) == (0, "")
    for word in ("utilization 0.92", "attention", "mlp", "head", "not torch's", "activations"):
        assert word in out
    for word in ("CUDA graphs", "KV cache", "bytes per token", "largest context", "engine log"):
        assert word in out
    for word in ("prefill of one", "decode step of one", "reading one's KV", "token passes"):
        assert word in out
    assert "| # weights, + rest, = KV cache" in out


def test_json_has_the_same(capsys):
    code, out, _ = run(capsys, *BASE, "output.format=json")
    row = json.loads(out)
    assert code == 0
    assert set(row) >= KEYS
    assert row == json.loads(json.dumps(size(*BASE)))


def test_terms_add_up():
    row = size(*BASE)
    terms = row["non_torch_gib"] + row["activation_gib"] + row["cuda_graph_gib"]
    assert row["usable_gib"] == pytest.approx(row["memory_gib"] * 0.92)
    assert row["usable_gib"] - row["weights_gib"] - terms == pytest.approx(row["kv_cache_gib"])
    assert sum(row["weights_by_part_gib"].values()) == pytest.approx(row["weights_gib"])
    assert row["num_gpu_blocks"] == int(row["kv_cache_gib"] * 512)  # blocks of 2 MiB
    assert row["rest_gib"] == pytest.approx(terms)
    assert row["warnings"] == []


@pytest.mark.parametrize(
    "term", ["weights_gib", "non_torch_gib", "activation_gib", "cuda_graph_gib", "kv_cache_gib"]
)
def test_a_measured_term_replaces_the_derived_one(term):
    row, derived = size(*BASE, f"size.{term}=15"), size(*BASE)
    assert row[term] == 15
    assert row["given"] == [term]
    change = 0 if term == "kv_cache_gib" else derived[term] - 15
    expected = 15 if term == "kv_cache_gib" else derived["kv_cache_gib"] + change
    assert row["kv_cache_gib"] == pytest.approx(expected)


def test_a_measured_term_may_be_set_where_a_simulation_has_it():
    assert size(*BASE, "kv.activation_gib=3") == size(*BASE, "size.activation_gib=3")
    assert size(*BASE, "kv.kv_cache_gib=9") == size(*BASE, "size.kv_cache_gib=9")


def test_one_reserve_for_the_three_terms():
    row = size(*BASE, "kv.reserve_gib=3")
    assert row["kv_cache_gib"] == pytest.approx(row["usable_gib"] - row["weights_gib"] - 3)
    assert row["reserve_gib"] == 3


def test_a_reserve_and_a_measured_term_do_not_go_together():
    for where in ("size", "kv"):
        with pytest.raises(ServesimError) as error:
            size(*BASE, "kv.reserve_gib=3", f"{where}.activation_gib=1")
        assert str(error.value) == (
            "kv.reserve_gib=3: stands for non_torch_gib, activation_gib, cuda_graph_gib together, "
            "and activation_gib is given, too; nearest: null"
        )


@pytest.mark.parametrize("scheduler", ["sglang", "hf", "vllm_v0", "vllm_v1"])
def test_a_simulation_can_be_told_the_blocks(scheduler):
    """To a block of `kv.block_size`, where the engine has pages of another size."""
    row = size(*BASE, f"scheduler={scheduler}")
    given = f"kv.num_gpu_blocks={row['simulated_num_gpu_blocks']}"
    told = setup_from(*BASE, f"scheduler={scheduler}", "cost=roofline", given).budget()
    derived = setup_from(*BASE, f"scheduler={scheduler}", "cost=roofline").budget()
    assert derived.num_gpu_blocks == row["num_gpu_blocks"]
    assert 0 <= derived.kv_cache_tokens - told.kv_cache_tokens < max(16, told.block_size)


def test_a_published_configuration_is_read(tmp_path):
    config = tmp_path / "config.json"
    keys = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }
    config.write_text(json.dumps(keys))
    row = size(f"hf_config={config}", *BASE[1:])
    assert row["num_gpu_blocks"] == size(*BASE)["num_gpu_blocks"]
    assert size(f"hf_config={tmp_path}", *BASE[1:])["kv_bytes_per_token"] == 131_072


def test_releases_differ_in_share_graphs_and_log():
    old, new = size(*BASE, "scheduler=vllm_v1_0.15"), size(*BASE, "scheduler=vllm_v1")
    assert (old["gpu_memory_utilization"], new["gpu_memory_utilization"]) == (0.9, 0.92)
    assert old["cuda_graph_gib"] == 0 < new["cuda_graph_gib"]
    assert (old["engine_log"].count("\n"), new["engine_log"].count("\n")) == (1, 0)


def test_a_larger_step_shrinks_the_cache():
    small, large = (size(*BASE, f"scheduler.max_num_batched_tokens={n}") for n in (2048, 65536))
    more = (65536 * 110_592 - 1024 * 128_256 * 14) / 2**30
    assert small["kv_cache_gib"] - large["kv_cache_gib"] == pytest.approx(more)


def test_a_drafter_adds_weights_and_layers():
    row, plain = size(*BASE, "model@draft=qwen3_0.6b"), size(*BASE)
    assert row["kv_bytes_per_token"] == 131_072 + 114_688
    assert row["weights_gib"] - plain["weights_gib"] == pytest.approx(1.110, abs=0.001)
    eagle = size(*BASE, "size.draft_layers=1")
    assert eagle["kv_bytes_per_token"] == 131_072 * 33 // 32
    assert eagle["num_gpu_blocks"] == pytest.approx(plain["num_gpu_blocks"] * 32 / 33, abs=1)


def test_a_drafter_of_multi_token_prediction_adds_its_own_weights():
    chosen = ("model=qwen3.6_27b", "hardware=h200_sxm", "max_model_len=32768")
    row, plain = size(*chosen, "size.draft_layers=1"), size(*chosen)
    assert row["weights_gib"] - plain["weights_gib"] == pytest.approx(0.791, abs=0.001)
    assert row["kv_growth_bytes_per_token"] == 17 * 4096


def test_data_parallel_ranks_share_experts_and_nothing_else():
    one, eight = (size("model=qwen3_30b_a3b", "hardware=h100_sxm", f"dp={n}") for n in (1, 8))
    parts = one["weights_by_part_gib"], eight["weights_by_part_gib"]
    assert parts[1]["experts"] == pytest.approx(parts[0]["experts"] / 8)
    assert parts[1]["attention"] == parts[0]["attention"]
    assert eight["dp_max_concurrency"] == 8 * eight["max_concurrency"]


# --- what does not go together ---


def test_a_cache_larger_than_what_the_weights_leave():
    row = size(*BASE, "size.kv_cache_gib=60")
    (warning,) = row["warnings"]
    assert warning.startswith("size.kv_cache_gib=60 contradicts the rest: memory 79.65 GiB")
    assert "leaves 58.32 GiB" in warning
    assert "gpu_memory_utilization of 0.941 or more" in warning
    (warning,) = size(*BASE, "size.kv_cache_gib=200")["warnings"]
    assert "a GPU of 214.96 GiB or more" in warning
    assert "summed over several GPUs" in warning


def test_blocks_and_bytes_that_are_of_another_cache():
    row = size(*BASE, "size.kv_cache_gib=5", "kv.num_gpu_blocks=5120")
    (warning,) = row["warnings"]
    assert "differ by a factor of 0.500" in warning
    assert "kv_dtype=fp8" in warning
    assert "a cache split over 2 ranks" in warning
    assert size(*BASE, "size.kv_cache_gib=5", "kv.num_gpu_blocks=2560")["warnings"] == []


def test_logged_tokens_of_another_cache():
    row = size(*BASE, "size.kv_cache_gib=5", "size.kv_cache_tokens=10240")
    (warning,) = row["warnings"]
    assert "keys and values counted for every query head" in warning
    assert size(*BASE, "size.kv_cache_gib=5", "size.kv_cache_tokens=40960")["warnings"] == []


@pytest.mark.parametrize(
    ("model", "given", "causes"),
    [
        # vllm#22291: hidden size × layers × 8, for K and for V
        (
            "qwen2.5_7b",
            2 * 3584 * 28 * 8,
            "keys and values counted for every query head and 8 bytes per element",
        ),
        # LMCache#694: a latent as 2 · layers · kv_lora_rank, and as multi-head attention
        ("deepseek_v2_lite", 27 * 2 * 512 * 2, "twice kv_lora_rank counted, without the rotary"),
        ("deepseek_v2_lite", 27 * 16 * 320 * 2, "keys and values of every head counted, not the"),
        ("deepseek_v2_lite", 2 * 31_104, "keys and values counted, where a latent is both"),
        ("qwen3_8b", 147_456 / 2, "keys or values alone, or kv_dtype=fp8"),
        ("qwen3_8b", 100_000, "another layout or budget"),
    ],
)
def test_a_figure_that_somebody_counted(model, given, causes):
    common = (f"model={model}", "hardware=h100_sxm", "max_model_len=4096")
    (warning,) = size(*common, f"size.kv_bytes_per_token={given}")["warnings"]
    assert warning.startswith(f"size.kv_bytes_per_token={given:.12g}, where ")
    assert f"what would explain it: {causes}" in warning
    derived = size(*common)["kv_bytes_per_token"]
    assert size(*common, f"size.kv_bytes_per_token={derived}")["warnings"] == []


def test_weights_of_another_format():
    (warning,) = size(*BASE, "size.weights_gib=8.5")["warnings"]
    assert "1.14 bytes per parameter, as of no plain format" in warning
    assert size(*BASE, "size.weights_gib=14.9888")["warnings"] == []


def test_a_context_that_does_not_fit():
    row = size(*BASE, "size.kv_cache_gib=3.5")
    assert not row["starts"]
    assert row["largest_context_tokens"] == (1792 - 1) * 16  # the null block holds nothing
    (warning,) = row["warnings"]
    assert "takes 2048 blocks and 1791 are there" in warning
    assert "max_model_len=28656" in warning
    fits = size(*BASE[:2], "max_model_len=28656", "size.kv_cache_gib=3.5")
    assert (fits["starts"], fits["warnings"]) == (True, [])


def test_a_context_beyond_the_models():
    (warning,) = size(*BASE[:2], "max_model_len=200000")["warnings"]
    assert "beyond the model's max_position_embeddings 131072" in warning


def test_no_room_is_an_error_that_names_the_terms():
    text = r"needs 131.42 GiB of weights and non_torch_gib=0.5, activation_gib=1.712, cuda_graph_"
    with pytest.raises(CapacityError, match=text):
        size("model=llama3.1_70b", "hardware=h100_sxm")


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
def test_every_dtype_of_weights(dtype):
    row = size("model=qwen3_0.6b", "hardware=mi300x", f"dtype={dtype}")
    assert row["weights_gib"] == pytest.approx(596_049_920 * DTYPE_BYTES[dtype] / 2**30)


CASES = {
    "hardware=h100_sxm": "model: no option is chosen (known: ",
    "model=llama3.1_8b": "hardware: no option is chosen (known: a100_40gb_pcie, ",
    "model=llama3.1_8 hardware=h100_sxm": "did you mean 'llama3.1_8b'?",
    "model=llama3.1_8b hardware=h100": "unknown hardware 'h100'",
    "{} hf_config=config.json": "hf_config='config.json': model is given, too",
    "hardware=h100_sxm hf_config=absent.json": "absent.json: no such file",
    "hardware=h100_sxm hf_config=5": "hf_config=5: must be text",
    "{} dtype=fp9": "unknown dtype 'fp9' (known: bf16, ",
    "{} kv_dtype=int4": "unknown kv_dtype 'int4' (known: bf16, ",
    "{} kv_dtype=fp8_ds_mla": "kv_dtype='fp8_ds_mla': is for models with a latent cache",
    "{} tp=3": "tp=3: must split 32 heads and 8 KV heads evenly",
    "{} tp=0": "tp=0: must be 1 or more",
    "{} dp=0": "dp=0: must be 1 or more",
    "{} tp=1,2": "tp=1,2: give one value",
    "{} size.weights_gib=-1": "size.weights_gib=-1: must be 0 or more",
    "{} size.activation_gib=x": "size.activation_gib='x': must be a finite number",
    "{} size.kv_cache_gib=0": "no KV cache: kv_cache_gib=0 is less than two blocks",
    "{} size.weight_gib=1": "did you mean 'weights_gib'?",
    "{} +size.weight_gib=1": "did you mean 'weights_gib'?",
    "{} size=null": "size=None: has settings of its own",
    "{} foo=1": "unknown setting of servesim size 'foo'",
    "{} +foo=1": "unknown setting 'foo'",
    "{} workload=fixed": "unknown config group 'workload' (known: hardware, kv, model, ",
    "{} size.prompt_tokens=0": "size.prompt_tokens=0: must be 1 or more",
    "{} size.num_requests=1.5": "size.num_requests=1.5: must be a whole number",
    "{} size.draft_layers=-1": "size.draft_layers=-1: must be 0 or more",
    "{} size.mamba_ssm_cache_dtype=int4": "unknown size.mamba_ssm_cache_dtype 'int4'",
    "{} gpu_memory_utilization=1.1": "gpu_memory_utilization=1.1: must be in (0, 1]",
    "{} max_model_len=1": "max_model_len=1: must be 2 or more",
    "{} kv.block_size=0": "kv.block_size=0: must be 1 or more",
    "{} kv.num_gpu_blocks=1": "kv.num_gpu_blocks=1: must be 2 or more",
    "{} kv=null": "kv: no option is chosen (known: no_prefix_cache, paged)",
    "{} scheduler=null": "scheduler: no option is chosen",
    "{} scheduler.release=9": "scheduler.release=9: must be quoted text",
    "{} output.format=xml": "unknown output.format 'xml' (known: json, table)",
    "{} -m": "servesim size takes settings and --help, not '-m'",
    "{} max_model_len": "cannot read 'max_model_len': expected setting=value",
}


@pytest.mark.parametrize("arguments", CASES)
def test_a_mistake_is_one_line(capsys, arguments):
    words = arguments.format("model=llama3.1_8b hardware=h100_sxm").split()
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert CASES[arguments] in err


def test_help_lists_the_settings(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for word in ("servesim size model=", "kv_cache_gib: null", "shared_prefix_tokens"):
        assert word in out
    assert main(("--help",)) == 0
    assert "servesim size --help" in capsys.readouterr().out


# --- hostile values, slips, and the same cache in a simulation ---


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("size.weights_gib=1e300", "size.weights_gib=1e+300: must be 1,073,741,824 GiB or less"),
        ("kv.reserve_gib=1e300", "kv.reserve_gib=1e+300: must be 1,073,741,824 GiB or less"),
        ("hardware.memory_gib=1e300", "hardware.memory_gib=1e+300: must be 1,073,741,824 GiB"),
        ("model.num_layers=1000000000", "model.num_layers=1000000000: is beyond any model"),
        ("kv.block_size=1000000000", "which leaves 55.63 GiB, less than two blocks of 131072000"),
    ],
)
def test_a_value_beyond_any_machine_or_model(override, message):
    with pytest.raises(ServesimError, match=re.escape(message)):
        size("model=llama3.1_8b", "hardware=h100_sxm", override)


def test_a_term_that_is_given_twice():
    twice = ("model=llama3.1_8b", "hardware=h100_sxm", "kv.weights_gib=15")
    with pytest.raises(ServesimError, match=re.escape("kv.weights_gib is given, too (15)")):
        size(*twice, "size.weights_gib=14")
    assert size(*twice, "size.weights_gib=15")["weights_gib"] == 15


def test_no_number_of_ranks_is_suggested_that_a_drafter_does_not_fit():
    with pytest.raises(ServesimError) as error:
        size("model=llama3.1_8b", "hardware=h100_sxm", "model@draft=llama3.1_405b")
    assert "nearest" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "given", "cause"),
    [
        ("llama3.1_8b", 2 * 32 * 8 * 128 * 16, "16 bytes per element (bits taken for bytes)"),
        ("llama3.1_8b", 2 * 8 * 128 * 2, "one layer alone"),
        # 5120 / 64 heads is 80, head_dim 128
        ("qwen3_32b_fp8", 2 * 64 * 8 * 80 * 2, "hidden_size / num_attention_heads taken for"),
        ("deepseek_v2_lite", 2 * 27 * 2048 * 2, "keys and values of hidden_size counted, not the"),
        ("nemotron_nano_9b_v2", 56 * 2 * 8 * 128 * 2, "every layer counted as attention"),
        ("gemma3_27b", 10 * 2 * 16 * 128 * 2, "layers with a window left out"),
    ],
)
def test_a_slip_is_named(model, given, cause):
    common = (f"model={model}", "hardware=h100_sxm", "max_model_len=4096")
    (warning,) = size(*common, f"size.kv_bytes_per_token={given}")["warnings"]
    assert cause in warning


def test_a_tiny_ratio_is_not_shown_as_zero():
    (warning,) = size(*BASE, "size.kv_bytes_per_token=1.5", "max_model_len=4096")["warnings"]
    assert "differ by a factor of 0.000" not in warning


def test_requests_beyond_the_context_are_noted():
    row = size("model=gpt2", "hardware=l4", "size.prompt_tokens=1000", "size.output_tokens=25")
    assert "requests of 1,025 tokens are beyond max_model_len 1,024" in row["notes"]
    assert (
        size("model=gpt2", "hardware=l4", "size.prompt_tokens=1", "size.output_tokens=1023")[
            "notes"
        ]
        == []
    )


def test_what_a_release_logs_of_windows_is_explained():
    chosen = ("model=gemma3_27b", "hardware=h100_sxm", "max_model_len=32768")
    old, new = size(*chosen, "scheduler=vllm_v1_0.15"), size(*chosen)
    groups = len(old["kv_groups"])
    (note,) = [n for n in old["notes"] if n.startswith("this release logs the tokens of one of")]
    assert f"one of {groups} groups, blocks / {groups} × block size" in note
    assert old["kv_cache_tokens"] == old["num_gpu_blocks"] // groups * 16
    tokens = int(old["max_concurrency"] * 32768) // 16 * 16
    assert f"fill the same blocks with {tokens:,} tokens" in note
    assert not any("this release" in n for n in new["notes"])
    assert not any("this release" in n for n in size(*BASE, "scheduler=vllm_v1_0.15")["notes"])


@pytest.mark.parametrize(
    ("spelling", "kv_dtype"),
    [
        ("auto", "bf16"),
        ("bfloat16", "bf16"),
        ("float16", "fp16"),
        ("half", "fp16"),
        ("fp8_e4m3", "fp8"),
        ("null", "bf16"),
    ],
)
def test_names_of_vllm_for_the_cache_format(spelling, kv_dtype):
    row = size(*BASE, f"kv_dtype={spelling}")
    assert row["kv_dtype"] == kv_dtype
    assert row["num_gpu_blocks"] == size(*BASE, f"kv_dtype={kv_dtype}")["num_gpu_blocks"]
    simulated = setup_from(*BASE, "cost=roofline", f"kv_dtype={spelling}").deployment
    assert simulated.kv_dtype == kv_dtype


@pytest.mark.parametrize(("kv_dtype", "expected"), [("null", "fp8"), ("auto", "bf16")])
def test_an_automatic_cache_is_never_narrower_than_activations(kv_dtype, expected):
    assert size(*BASE, "dtype=fp8", f"kv_dtype={kv_dtype}")["kv_dtype"] == expected
    assert size(*BASE, "dtype=int4", f"kv_dtype={kv_dtype}")["kv_dtype"] == ("bf16")


# --- what would fit ---


def refused(*chosen):
    with pytest.raises(CapacityError) as error:
        size(*chosen)
    return str(error.value)


@pytest.mark.parametrize(
    ("model", "hardware", "nearest"),
    [
        # a rank of 24 GB less 22.4 of weights leaves nothing for the buffers of the collectives
        ("qwen3_32b", "rtx_4090", "tp=4"),
        ("llama3.1_70b", "h100_sxm", "tp=4"),  # with two, 131,072 tokens do not fit
        ("llama3.1_405b", "h200_sxm", "tp=8"),
    ],
)
def test_the_nearest_number_of_ranks_starts(model, hardware, nearest):
    chosen = (f"model={model}", f"hardware={hardware}")
    assert refused(*chosen).endswith(f"; nearest: {nearest}")
    assert size(*chosen, nearest)["starts"]
    fewer = f"tp={int(nearest.removeprefix('tp=')) // 2}"
    try:
        starts = size(*chosen, fewer)["starts"]
    except CapacityError:
        starts = False
    assert not starts


def test_the_nearest_context_where_an_engine_keeps_memory_for_it():
    chosen = ("model=llama3.1_8b", "hardware=rtx_4090", "scheduler=orca")
    nearest = refused(*chosen).rpartition("; nearest: ")[2]
    assert nearest.startswith("max_model_len=")
    assert size(*chosen, nearest)["starts"]
    simulated = setup_from(*chosen, "cost=roofline", nearest)
    assert simulated.budget().kv_cache_tokens >= simulated.max_model_len


@pytest.mark.parametrize("spoilt", ["size.non_torch_gib=100", "gpu_memory_utilization=0.01"])
def test_nothing_is_offered_that_would_not_help(spoilt):
    assert "nearest" not in refused(*BASE, spoilt)


@pytest.mark.parametrize(
    "chosen",
    [
        ("model=llama3.1_8b", "scheduler=hf"),  # pages of 256 tokens
        ("model=gemma3_27b", "max_model_len=32768"),
    ],
)
def test_the_nearest_number_of_blocks(chosen):
    chosen = (*chosen, "hardware=h200_sxm")
    text, _, nearest = refused(*chosen, "kv.num_gpu_blocks=2").rpartition("; nearest: ")
    assert text.startswith("kv.num_gpu_blocks=2: hold less than ")
    with pytest.raises(CapacityError):
        size(*chosen, f"kv.num_gpu_blocks={int(nearest) - 1}")
    simulated = setup_from(*chosen, "cost=roofline", f"kv.num_gpu_blocks={nearest}").budget()
    assert simulated.kv_cache_tokens == simulated.block_size
