from dataclasses import replace

import pytest

from servesim.errors import SettingError
from servesim.model.spec import ModelSpec

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
    assert TINY.weight_bytes("fp32", tp=2) == 984 * 2
    assert TINY.kv_bytes_per_token("bf16") == 2 * 2 * (2 * 2) * 2
    assert TINY.kv_bytes_per_token("fp8") == 16


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
