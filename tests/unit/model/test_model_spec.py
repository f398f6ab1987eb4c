from dataclasses import replace

import pytest

from servesim.errors import SettingError
from servesim.model.spec import KVLayers, ModelSpec

# 2 layers of width 8: 4 heads of 2, 2 KV heads, MLP 10, vocabulary 5
TINY = ModelSpec(
    name="tiny",
    num_layers=2,
    hidden_size=8,
    num_heads=4,
    num_kv_heads=2,
    head_dim=2,
    intermediate_size=10,
    vocab_size=5,
    tied_embeddings=False,
    max_position_embeddings=64,
)

# each module of it: q, k, v, o, three of the MLP, norms in both layers, two tables, last norm
PIECES = 2 * [64, 32, 32, 64, 80, 80, 80, 16] + [40, 40, 8]


def test_parameters_are_counted_by_hand():
    q, k, v, o = 8 * 8, 8 * 4, 8 * 4, 8 * 8
    mlp, norms, table = 3 * 8 * 10, 2 * 8, 5 * 8
    assert TINY.linear_parameters_per_layer == q + k + v + o + mlp == 432
    assert TINY.num_parameters == 2 * (432 + norms) + 2 * table + 8 == 984


def test_each_option_adds_its_own_weights():
    assert TINY.num_parameters - replace(TINY, tied_embeddings=True).num_parameters == 5 * 8
    biased = replace(TINY, attention_bias=True)
    assert biased.num_parameters - TINY.num_parameters == 2 * (8 + 4 + 4)
    assert replace(TINY, qk_norm=True).num_parameters - TINY.num_parameters == 2 * (2 + 2)


def test_bytes_of_weights_and_kv():
    assert TINY.weight_bytes("bf16") == 984 * 2
    # 40 parameters of norms are on both ranks, the rest is split
    assert TINY.weight_bytes("fp32", tp=2) == ((984 - 40) // 2 + 40) * 4
    assert TINY.kv_bytes_per_token("bf16") == 2 * 2 * (2 * 2) * 2
    assert TINY.kv_bytes_per_token("fp8") == 16


def test_kv_projections_are_replicated_beyond_the_kv_heads():
    # 944 split parameters, of which k and v are 2 layers x 2 x 8*4 = 128 over 2 heads
    assert TINY.weight_bytes("bf16", tp=4) == 2 * ((944 - 128) // 4 + 128 // 2 + 40)


def test_parts_add_up_to_the_weights():
    parts = {part.name: part for part in TINY.weight_parts("bf16", tp=2)}
    assert {name: part.parameters for name, part in parts.items()} == {
        "embedding": 5 * 8,
        "attention": 2 * (8 * 8 + 2 * 8 * 4 + 8 * 8),
        "mlp": 2 * 3 * 8 * 10,
        "norms": 2 * 2 * 8 + 8,
        "head": 5 * 8,
    }
    assert parts["norms"].rank_bytes == 2 * 40
    assert parts["head"].rank_bytes == 5 * 8
    assert sum(part.rank_bytes for part in parts.values()) == TINY.weight_bytes("bf16", tp=2)
    assert TINY.active_parameters == TINY.num_parameters
    assert TINY.expected_active_experts(100) == 0


def test_half_bytes_are_exact():
    assert TINY.weight_bytes("int4") == 984 // 2
    assert TINY.weight_bytes("q8_0") == sum(-(-n * 34 // 32) for n in PIECES)


def test_all_layers_are_one_kind_of_cache():
    assert TINY.kv_layers("bf16", tp=2) == (KVLayers("full attention", 2, 2 * 2 * 2, None, 0),)
    with pytest.raises(SettingError, match=r"^kv_dtype='fp8_ds_mla': is for models with a latent"):
        TINY.kv_layers("fp8_ds_mla")


def test_a_kv_head_is_never_split():
    assert [TINY.kv_heads_per_rank(tp) for tp in (1, 2, 4)] == [2, 1, 1]
    assert TINY.kv_bytes_per_token("bf16", tp=4) == TINY.kv_bytes_per_token("bf16", tp=2)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "tp", "splits"),
    [
        (28, 4, 4, True),
        (28, 4, 28, True),
        (28, 4, 7, False),  # 28 heads would do, 4 KV heads over 7 ranks would not
        (40, 8, 5, False),
        (32, 8, 3, False),
        (32, 8, 16, True),
    ],
)
def test_which_ranks_share_the_heads_evenly(heads, kv_heads, tp, splits):
    assert replace(TINY, num_heads=heads, num_kv_heads=kv_heads).splits_over(tp) is splits


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_layers", 0),
        ("head_dim", 1.5),
        ("vocab_size", "many"),
        ("num_kv_heads", 3),
        ("tied_embeddings", "false"),
        ("qk_norm", 1),
    ],
)
def test_bad_layouts_are_named(setting, value):
    with pytest.raises(SettingError, match=rf"^{setting}={value!r}: "):
        replace(TINY, **{setting: value})
