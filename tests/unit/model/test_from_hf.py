"""Reading config.json: where it is found, what is refused, what an unknown one gives."""

import json
import os
import sys

import pytest

from servesim.errors import ModelConfigError, SettingError
from servesim.model import from_hf as module
from servesim.model.from_hf import from_hf, published

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 10,
    "vocab_size": 5,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def write(folder, keys):
    path = folder / "config.json"
    path.write_text(keys if isinstance(keys, str) else json.dumps(keys))
    return path


def refused(keys, match):
    with pytest.raises(ModelConfigError, match=match) as error:
        published("m", **keys)
    assert "\n" not in str(error.value)


class TestWhereItIsFound:
    def test_a_file_and_its_folder_are_one_model(self, tmp_path):
        path = write(tmp_path, LLAMA)
        file, folder = from_hf(path), from_hf(tmp_path)
        assert file.num_parameters == folder.num_parameters == 984
        assert (file.name, folder.name) == (str(path), str(tmp_path))

    @pytest.mark.parametrize("commits", [("aaa",), ("aaa", "bbb")])
    def test_an_id_is_looked_up_in_the_local_cache(self, tmp_path, monkeypatch, commits):
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        model = tmp_path / "hub" / "models--org--tiny"
        for layers, commit in enumerate(commits, start=1):
            (model / "snapshots" / commit).mkdir(parents=True)
            write(model / "snapshots" / commit, LLAMA | {"num_hidden_layers": layers})
        spec = from_hf("org/tiny")
        assert (spec.name, spec.num_layers) == ("org/tiny", len(commits))
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("aaa")
        assert from_hf("org/tiny").num_layers == 1

    def test_what_is_not_there_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        for name in ("org/absent", "absent.json", "a/b/c", str(tmp_path / "x.json"), "\0"):
            with pytest.raises(ModelConfigError, match="no such file, folder or locally cached"):
                from_hf(name)
        with pytest.raises(ModelConfigError, match="is a folder without"):
            from_hf(tmp_path)
        with pytest.raises(ModelConfigError, match="cannot be read"):
            from_hf("x" * 5000)
        with pytest.raises(ModelConfigError, match="cannot be read"):
            from_hf("~no-such-user/config.json")

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelConfigError, match="is not a regular file"):
            from_hf(tmp_path / "pipe")

    def test_model_opts_file_beside_it_tells_the_quantisation(self, tmp_path):
        write(tmp_path, LLAMA)
        quant = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(quant))
        spec = from_hf(tmp_path)
        assert spec.quantisation is not None
        assert spec.weight_bytes("bf16") == 984 * 2 - 2 * 432  # two layers of 432 linear weights
        assert spec.notes == ("the checkpoint is made for an fp8 KV cache",)


class TestWhatIsNoConfiguration:
    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("", "is not JSON"),
            ("model: llama", "is not JSON"),
            ('{"a": ', "is not JSON"),
            ("[1, 2]", "holds a JSON list, not an object"),
            ("7", "holds a JSON int, not an object"),
            ("[" * 100_000, "is not JSON: it is nested too deeply"),
            ('{"hidden_size": ' + "9" * 5000 + "}", "a whole number has more than 4,300 digits"),
            ("\ufeff{}", "it begins with a byte-order mark; save it as UTF-8 without one"),
            ("{}", "num_hidden_layers"),
            ('{"tokenizer_class": "LlamaTokenizer"}', "is a tokenizer's configuration"),
            ('{"quantization_config": null}', "num_hidden_layers"),
        ],
    )
    def test_is_refused(self, tmp_path, text, match):
        path = write(tmp_path, text)
        with pytest.raises(ModelConfigError, match=match) as error:
            from_hf(path)
        assert str(error.value).startswith(f"{path}: ")

    def test_bytes_that_are_no_text(self, tmp_path):
        path = tmp_path / "config.json"
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ModelConfigError, match="is not JSON: byte 0 is not UTF-8"):
            from_hf(path)

    def test_a_huge_file_is_not_read(self, tmp_path, monkeypatch):
        path = write(tmp_path, LLAMA)
        monkeypatch.setattr(module, "MOST_BYTES", path.stat().st_size - 1)
        with pytest.raises(ModelConfigError, match="a configuration has at most"):
            from_hf(path)


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "value", "match"),
        [
            ("num_attention_heads", None, "m: num_attention_heads .* is null"),
            ("num_hidden_layers", 0, "num_hidden_layers=0: must be 1 or more"),
            ("num_hidden_layers", 3000, "is beyond any model"),
            ("hidden_size", -8, "hidden_size=-8: must be 1 or more"),
            ("hidden_size", "8", "hidden_size='8': must be a whole number"),
            ("hidden_size", True, "must be a whole number"),
            ("hidden_size", float("nan"), "hidden_size=nan: must be a whole number"),
            ("hidden_size", float("inf"), "hidden_size=inf: must be a whole number"),
            ("hidden_size", 9, "head_dim is missing, and hidden_size 9 is no multiple of 4 heads"),
            ("num_key_value_heads", 3, "num_key_value_heads=3: must divide the 4 query heads"),
            ("vocab_size", [5], r"vocab_size=\[5\]: must be a whole number"),
            ("intermediate_size", 10**30, "is beyond any model"),
            ("tie_word_embeddings", "no", "tie_word_embeddings='no': must be true or false"),
            ("model_type", 7, "model_type=7: must be text"),
            ("architectures", "L", "architectures='L': must be a list"),
            ("layer_types", ["full_attention"], "has 1 entries for 2 layers"),
            ("quantization_config", [], r"quantization_config=\[\]: must be an object"),
            ("quantization_config", {"quant_method": "gtpq"}, "did you mean 'gptq'"),
        ],
    )
    def test_a_wrong_value_is_named(self, key, value, match):
        keys = LLAMA | {"sliding_window": 8, key: value}
        if key == "architectures":
            keys["model_type"] = "unheard_of"
        refused(keys, match)

    def test_a_missing_key_is_named_with_the_nearest_there(self):
        keys = {k: v for k, v in LLAMA.items() if k != "num_attention_heads"}
        refused(keys | {"num_atention_heads": 4}, "nearest key there: 'num_atention_heads'")

    def test_a_whole_float_is_a_whole_number(self):
        assert published("m", **LLAMA | {"hidden_size": 8.0}).num_parameters == 984

    def test_the_name_is_text(self):
        with pytest.raises(SettingError, match="name=7"):
            published(7, **LLAMA)

    @pytest.mark.parametrize(
        ("keys", "what"),
        [
            ({"hidden_size": 10_000_000, "head_dim": 10**9}, "parameters"),
            ({"hidden_size": 1, "head_dim": 10**9}, "bytes of KV per token"),
        ],
    )
    def test_products_that_no_gpu_could_hold_are_refused(self, keys, what):
        refused(LLAMA | keys, f"{what}, more than any model has")


class TestUnknownArchitectures:
    def test_best_effort_says_what_it_used_and_what_not(self):
        keys = LLAMA | {"model_type": "novel", "frobnication": 3, "rms_norm_eps": 1e-6}
        spec = published("m", **keys)
        assert spec.num_parameters == 984
        used, unread = spec.notes
        assert used.startswith("model_type novel is not known: sized as a gated decoder from ")
        assert "num_key_value_heads" in used
        assert unread == "not understood: frobnication"

    def test_experts_and_latents_are_recognised(self):
        keys = LLAMA | {"model_type": "novel", "num_experts": 4, "num_experts_per_tok": 2}
        spec = published("m", **keys)
        assert spec.expected_active_experts(1) == 2
        latent = {"kv_lora_rank": 6, "qk_rope_head_dim": 2, "qk_nope_head_dim": 2, "v_head_dim": 2}
        (cache,) = published("m", **keys | latent).kv_layers("bf16")
        assert (cache.kind, cache.bytes_per_token) == ("latent", 16)

    @pytest.mark.parametrize(
        "keys",
        [{"mamba_num_heads": 4}, {"linear_attn_config": {"a": 1}}, {"is_encoder_decoder": True}],
    )
    def test_a_cache_that_is_not_understood_is_refused(self, keys):
        refused(LLAMA | {"model_type": "novel"} | keys, "is not understood for the unknown")

    @pytest.mark.parametrize("kind", ["gpt2", "starcoder2"])
    def test_an_unknown_type_inside_one_that_needs_its_name_is_refused(self, kind):
        keys = {"model_type": kind, "text_config": LLAMA | {"model_type": "novel"}}
        refused(keys, "text_config.model_type='novel': must be one of gpt2, ")

    def test_experts_under_another_name_are_not_overlooked(self):
        refused(LLAMA | {"model_type": "novel", "expert_count": 8}, "expert_count=8: is not under")

    def test_what_does_not_generate_is_refused(self):
        refused(LLAMA | {"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "generates")

    @pytest.mark.parametrize(
        ("pattern", "windows"),
        [(2, [8, None]), ("LG", [8, None]), ("L", [8, 8]), (None, [8, 8]), (1, [None, None])],
    )
    def test_patterns_of_windows(self, pattern, windows):
        keys = {"model_type": "cohere2", "sliding_window": 8, "sliding_window_pattern": pattern}
        layers = published("m", **LLAMA | keys).layers
        assert [layer.mixer.window_tokens for layer in layers] == windows

    def test_an_architecture_is_enough(self):
        keys = {"model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}
        refused(keys, "m: num_hidden_layers is missing")


def test_families_do_not_share_a_model_type():
    types, _ = module._table()
    listed = [kind for found in module.family_modules() for kind in found.MODEL_TYPES]
    assert sorted(listed) == sorted(types)


LACKING = {  # a Llama whose file leaves out what its class knows
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}


def test_a_key_that_is_missing_is_taken_from_transformers_where_it_is_installed(tmp_path):
    pytest.importorskip("transformers", reason="needs transformers")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LACKING))
    spec = from_hf(path)
    assert spec.num_parameters == 6_738_415_616  # Llama-2-7B: its class' intermediate size, 11008
    assert any("default of transformers: intermediate_size=11008" in note for note in spec.notes)


def test_without_transformers_a_missing_key_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LACKING))
    with pytest.raises(ModelConfigError, match="intermediate_size is missing"):
        from_hf(path)
