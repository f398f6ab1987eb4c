"""Parameters and rank shares of each kind of layer, by hand."""

from dataclasses import replace
from math import comb

import pytest

from servesim.model.attention import Attention, Indexer, LatentAttention
from servesim.model.layer import Layer
from servesim.model.mlp import MLP, MoE
from servesim.model.parts import Weights
from servesim.model.recurrent import Mamba2Widths, gated_delta_net, kimi_delta, lightning, mamba2
from servesim.model.spec import ModelSpec

HIDDEN = 8


def parameters(part, tp=None):
    """All of them, or those on one of `tp` ranks."""
    each = part.weights(HIDDEN)
    return sum(w.parameters if tp is None else w.on_one_rank(tp) for w in each)


def model(*layers, **fields):
    defaults = {
        "name": "m",
        "num_layers": len(layers),
        "hidden_size": HIDDEN,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 2,
        "intermediate_size": 10,
        "vocab_size": 5,
        "tied_embeddings": True,
        "max_position_embeddings": 64,
        "layers": layers,
    }
    return ModelSpec(**defaults | fields)


def test_attention_options_each_add_their_weights():
    plain = Attention(4, 2, 2, 2)
    assert parameters(plain) == 8 * 8 + 2 * 8 * 4 + 8 * 8
    added = {
        "qkv_bias": 8 + 4 + 4,
        "o_bias": 8,
        "output_gate": 8 * 8,
        "sinks": 4,
        "shared_kv_projection": -8 * 4,
    }
    for option, difference in added.items():
        assert parameters(replace(plain, **{option: True})) - parameters(plain) == difference
    assert parameters(replace(plain, v_head_dim=1)) == 8 * 8 + 8 * 4 + 8 * 2 + 4 * 8
    reader = replace(plain, owns_kv=False)  # of an earlier layer's cache
    assert parameters(reader) == 2 * 8 * 8
    assert list(reader.caches("bf16", 1)) == []


def test_a_latent_replicates_its_down_projections():
    mixer = LatentAttention(4, 6, 2, 3, 2, q_lora_rank=5)
    q = 8 * 5 + 5 * 4 * (3 + 2) + 5  # down, up, norm
    kv = 8 * (6 + 2) + 6 * 4 * (3 + 2) + 6
    out = 4 * 2 * 8
    assert parameters(mixer) == q + kv + out
    split = 5 * 4 * 5 + 6 * 4 * 5 + out
    assert parameters(mixer, 4) == parameters(mixer) - split + split // 4
    assert parameters(replace(mixer, q_lora_rank=None)) == 8 * 4 * 5 + kv + out
    indexer = Indexer(num_heads=2, head_dim=128, q_rank=5)
    sparse = replace(mixer, indexer=indexer)
    own = 5 * 2 * 128 + 8 * 2 + 8 * 128 + 2 * 128
    assert parameters(sparse) == parameters(mixer) + own
    assert parameters(sparse, 4) == parameters(mixer, 4) + own


def test_recurrent_mixers():
    delta = gated_delta_net(HIDDEN, (2, 3), (4, 5), kernel=4, fp=4)
    keys, values = 2 * 3, 4 * 5
    conv = 2 * keys + values
    projections = 8 * (2 * keys + 2 * values) + 8 * 2 * 4 + values * 8
    assert parameters(delta) == projections + conv * 4 + 2 * 4 + 5
    (cache,) = delta.caches("fp8", 1)
    assert cache.state_bytes == 4 * 3 * 5 * 4 + conv * 3 * 2

    mamba = mamba2(HIDDEN, Mamba2Widths(4, 3, 2, 5, 4, conv_bias=True), 2)
    inner, conv = 12, 12 + 2 * 2 * 5
    assert parameters(mamba) == 8 * (inner + conv + 4) + inner * 8 + conv * 5 + 3 * 4 + inner
    (cache,) = mamba.caches("bf16", 1)
    assert cache.state_bytes == 12 * 5 * 2 + conv * 3 * 2

    kda = kimi_delta(HIDDEN, heads=2, head_dim=3, kernel=4, full_gate=False)
    low_rank = 3 * (8 + 6)
    rest = 3 * 6 * 4 + 2 + 6 + 3
    assert parameters(kda) == 3 * 8 * 6 + 2 * low_rank + 8 * 2 + 6 * 8 + rest
    full = kimi_delta(HIDDEN, heads=2, head_dim=3, kernel=4, full_gate=True)
    assert parameters(full) - parameters(kda) == 8 * 6 - low_rank

    (cache,) = lightning(HIDDEN, heads=2, head_dim=3, fp=2).caches("bf16", 2)
    assert (cache.bytes_per_token, cache.state_bytes) == (0, 3 * 3 * 2)


def test_experts_and_what_is_beside_them():
    moe = MoE(6, 2, 10)
    assert parameters(moe) == 6 * 3 * 8 * 10 + 8 * 6
    assert parameters(moe, 2) == 6 * 3 * 8 * 10 // 2 + 8 * 6
    assert sum(w.active_parameters for w in moe.weights(HIDDEN)) == 2 * 240 + 48
    more = replace(moe, shared_size=5, shared_gate=True, router_bias=1, dense_size=4)
    assert parameters(more) - parameters(moe) == 3 * 8 * 5 + 8 + 6 + 3 * 8 * 4
    latent = replace(moe, latent_size=4, gated=False)
    assert parameters(latent) == 6 * 2 * 4 * 10 + 8 * 6 + 2 * 8 * 4
    biased = replace(moe, bias=True)
    assert parameters(biased) - parameters(moe) == 6 * (2 * 10 + 8)
    assert parameters(MLP(10, gated=False, bias=True)) == 2 * 80 + 10 + 8


@pytest.mark.parametrize("tokens", [0, 1, 2, 5])
def test_distinct_experts_that_a_batch_reaches(tokens):
    """Each of 6 experts is left out by a token that chooses 2 of 6 with chance C(5,2)/C(6,2)."""
    spec = model(Layer(None, MoE(6, 2, 10), 16), Layer(None, MLP(10), 16))
    missed = (comb(5, 2) / comb(6, 2)) ** tokens
    assert spec.expected_active_experts(tokens) == pytest.approx(6 * (1 - missed))
    assert spec.expected_active_experts(1000) <= 6


def test_a_model_of_unlike_layers():
    full, window = Attention(4, 2, 2, 2), Attention(4, 2, 2, 2, window_tokens=8)
    moe, dense = MoE(6, 2, 10), MLP(10)
    spec = model(
        Layer(window, moe, 16),
        Layer(full, dense, 16),
        Layer(window, moe, 16),
        extra=(Weights("mtp", "mtp", 77), Weights("vision tower", "vision", 33, linear=False)),
    )
    attention, mlp = 8 * 8 + 2 * 8 * 4 + 8 * 8, 3 * 8 * 10
    layers = 3 * (attention + 16) + 2 * (6 * mlp + 48) + mlp
    assert spec.num_parameters == layers + 5 * 8 + 8 + 33
    assert spec.active_parameters == spec.num_parameters - 33 - 2 * 4 * mlp
    linear = 3 * attention + 2 * (2 * mlp + 48) + mlp
    assert spec.linear_parameters_per_layer == linear // 3
    caches = [(k.kind, k.num_layers, k.window_tokens) for k in spec.kv_layers("bf16")]
    assert caches == [("sliding window", 2, 8), ("full attention", 1, None)]
    assert spec.kv_bytes_per_token("bf16") == 3 * 2 * 2 * 2 * 2
    parts = {part.name: part for part in spec.weight_parts("bf16")}
    assert not parts["mtp"].loaded
    loaded = sum(part.rank_bytes for part in parts.values()) - parts["mtp"].rank_bytes
    assert loaded == spec.weight_bytes("bf16") == 2 * spec.num_parameters


def test_ranks_must_share_every_layer():
    mixers = Attention(4, 2, 2, 2), lightning(HIDDEN, 3, 2, 2)
    attention, recurrent = (Layer(mixer, MLP(10), 16) for mixer in mixers)
    assert model(attention).splits_over(2)
    assert not model(attention, recurrent).splits_over(2)
    assert model(Layer(None, MLP(10), 16)).splits_over(7)
