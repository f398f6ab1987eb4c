"""Groups of layers and the blocks that a request takes: by hand, then for any model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.errors import SettingError
from servesim.kv.groups import CacheRules, KVGroup, growth_bytes, layout_of, request_bytes
from servesim.model.parts import KVLayers


def full(layers, size=4096, kind="full attention"):
    return KVLayers(kind, layers, size, None, 0)


def windowed(layers, window, size=4096):
    return KVLayers("sliding window", layers, size, window, 0)


def recurrent(layers, state):
    return KVLayers("recurrent", layers, 0, None, state)


def sizes(layout):
    return [(group.num_layers, group.block_size) for group in layout.groups]


def test_layers_that_keep_everything_are_one_group():
    layout = layout_of([full(32)], CacheRules(16))
    assert layout.uniform
    assert layout.block_bytes == 32 * 4096 * 16
    assert [layout.blocks_per_request(n) for n in (1, 16, 17)] == [1, 1, 2]
    assert layout.concurrency(1952, 20_000) == 1952 / 1250


def test_a_latent_and_its_index_keys_share_a_block():
    layout = layout_of([full(61, 656, "latent"), full(61, 132, "indexer")], CacheRules(64))
    assert layout.uniform
    assert layout.block_bytes == 61 * (656 + 132) * 64
    assert layout.groups[0].kind == "latent + indexer"


def test_one_window_for_all_layers_is_one_group_that_stops_growing():
    layout = layout_of([windowed(32, 4096)], CacheRules(16, in_flight_tokens=2048))
    assert not layout.uniform
    # 4095 tokens of the window and 2048 in flight are 384 blocks, which may begin mid-block
    assert layout.blocks_per_request(100_000) == 385
    assert layout.blocks_per_request(1000) == 64
    assert layout.longest(384, 100_000) == 383 * 16
    assert layout.longest(385, 100_000) == 100_000


def test_kinds_in_equal_numbers_get_a_group_each():
    # gpt-oss-20b: 12 of each; a block is a page of 12 layers
    layout = layout_of([windowed(12, 128, 2048), full(12, 2048)], CacheRules(16, True, 8192))
    assert sizes(layout) == [(12, 16), (12, 16)]
    assert layout.block_bytes == 12 * 2048 * 16
    assert layout.blocks_per_request(8192) == 512 + (512 + 1)  # min(127 + 8192, 8192) is 8192


def test_a_drafter_does_not_tear_groups_apart():
    # with one layer more on one side, 12 + 13 are padded to 13 + 13; before 0.15 they were not
    caches = [windowed(12, 128, 2048), full(13, 2048)]
    assert sizes(layout_of(caches, CacheRules())) == [(12, 16), (13, 16)]
    assert layout_of(caches, CacheRules()).block_bytes == 13 * 2048 * 16
    old = layout_of(caches, CacheRules(equal_below=1.0))
    assert sizes(old) == [(12, 16), (7, 16), (6, 16)]


def test_layers_with_fewer_bytes_per_token_get_longer_blocks():
    # Gemma-4-31B: 50 windows of 16 KV heads × 256, 10 full of 4 × 512: pages of 16 and 32 tokens
    layout = layout_of([windowed(50, 1024, 16384), full(10, 8192)], CacheRules(16))
    assert sizes(layout) == [(10, 16)] * 5 + [(10, 32)]
    assert layout.block_bytes == 10 * 16384 * 16
    assert layout.block_size == 32
    assert layout.prefix_tokens == 32


def test_a_page_that_does_not_divide_the_largest_is_padded():
    layout = layout_of([windowed(10, 1024, 3000), full(10, 2000)], CacheRules(16))
    assert sizes(layout) == [(10, 16), (10, 16)]
    assert layout.block_bytes == 10 * 3000 * 16


@pytest.mark.parametrize(
    ("state", "per_token", "block"),
    [
        (3_207_168, 4096, 784),  # Qwen3.6-27B: 783.0
        (2_146_304, 4096, 528),  # Qwen3.5-9B: 524
        (2_695_168, 4096, 672),  # Nemotron-Nano-9B-v2 with states in bf16: 658
    ],
)
def test_an_attention_block_is_raised_until_a_state_fits(state, per_token, block):
    layout = layout_of([full(16, per_token), recurrent(48, state)], CacheRules(16))
    assert layout.block_size == block == layout.prefix_tokens
    assert layout.state_padding == pytest.approx(block * per_token / state - 1)
    assert layout.block_bytes == 16 * block * per_token
    assert sizes(layout) == [(16, block)] * 4


def test_recurrent_groups_take_a_state_or_two_and_one_per_draft():
    caches = [full(16), recurrent(48, 3_207_168)]
    plain = layout_of(caches, CacheRules(16, enable_prefix_caching=False))
    aligned = layout_of(caches, CacheRules(16))
    drafted = layout_of(caches, CacheRules(16, num_speculative_tokens=3))
    assert plain.blocks_per_request(784) == 1 + 3 * 1
    assert aligned.blocks_per_request(784) == 1 + 3 * 2
    assert drafted.blocks_per_request(785) == 2 + 3 * 5


def test_a_latent_beside_recurrent_layers_has_blocks_of_128_in_new_releases():
    caches = [full(24, 1152, "latent"), recurrent(69, 6_512_640)]
    assert layout_of(caches, CacheRules()).block_size == 5760  # 5653.3 to a multiple of 128
    assert layout_of(caches, CacheRules(latent_tokens=0)).block_size == 5664  # of 16


def test_a_window_keeps_what_is_in_flight_beside_itself():
    # vllm#54703: window 4, block 4, two steps of 16 384 tokens in flight
    group = KVGroup("sliding window", 1, 4, 4)
    assert group.blocks(1_000_000, CacheRules(4, True, 2 * 16_384)) == 8194


def test_compressed_layers_set_the_block_that_windows_are_cut_to():
    caches = [windowed(40, 128, 584), full(20, 146, "compressed"), full(20, 33, "indexer")]
    layout = layout_of(caches, CacheRules())
    assert layout.block_bytes == 256 * 20 * (146 + 33)
    # 3580 // 584 = 6 windows fit: 7 groups of 6 or 5
    assert sizes(layout) == [(20, 256)] + [(6, 256)] * 5 + [(5, 256)] * 2


def test_prefixes_are_found_in_whole_blocks_of_every_group():
    layout = layout_of([full(16), recurrent(48, 3_207_168)], CacheRules(16))
    assert layout.prefix_hit(240) == 0  # vllm#54607: a system prompt below one block
    assert layout.prefix_hit(1700) == 1568
    assert layout.prefix_hit(1700, drops_last=True) == 784
    small = layout_of([full(16)], CacheRules(16))
    assert small.prefix_hit(240) == 240
    assert small.prefix_hit(10, drops_last=True) == 0


def test_bytes_of_a_request_stop_growing_with_its_windows():
    caches = [windowed(12, 128, 2048), full(12, 2048), recurrent(2, 1000)]
    assert request_bytes(caches, 100) == 24 * 2048 * 100 + 2000
    assert request_bytes(caches, 8192) == 12 * 2048 * (128 + 8192) + 2000
    assert growth_bytes(caches) == 12 * 2048


def test_a_model_without_a_cache_is_refused():
    with pytest.raises(SettingError, match="no layer keeps a KV cache"):
        layout_of([], CacheRules())


COUNTS = st.integers(1, 80)
CACHES = st.lists(
    st.one_of(
        st.builds(full, COUNTS, st.sampled_from([512, 1152, 2048, 4096, 5120])),
        st.builds(windowed, COUNTS, st.integers(1, 4096), st.sampled_from([2048, 3000, 4096])),
        st.builds(recurrent, COUNTS, st.integers(1000, 10**7)),
    ),
    min_size=1,
    max_size=4,
)


@given(caches=CACHES, tokens=st.integers(1, 50_000), caching=st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_layer_is_in_a_group_and_a_blocks_bytes_hold_what_is_in_it(caches, tokens, caching):
    rules = CacheRules(16, caching, in_flight_tokens=512)
    layout = layout_of(caches, rules)
    uniform = len(layout.groups) == 1 and not any(c.state_bytes for c in caches)
    if not uniform:
        assert sum(g.num_layers for g in layout.groups) == sum(c.num_layers for c in caches)
    blocks = layout.blocks_per_request(tokens)
    # what a request has is no more than the blocks that it takes
    assert request_bytes(caches, tokens) <= blocks * layout.block_bytes
    assert layout.blocks_per_request(tokens + 1) >= blocks


@given(caches=CACHES, blocks=st.integers(1, 5000))
@settings(max_examples=200, deadline=None)
def test_the_longest_request_fits_and_one_token_more_does_not(caches, blocks):
    layout = layout_of(caches, CacheRules(16, in_flight_tokens=512))
    longest = layout.longest(blocks, 10**6)
    if longest:
        assert layout.blocks_per_request(longest) <= blocks
    if longest < 10**6:
        assert layout.blocks_per_request(longest + 1) > blocks
