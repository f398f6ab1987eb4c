"""Steps of models that are not dense, worked out by hand from their published layouts.

On READS a byte takes a nanosecond and multiplying nothing, on FLOPS it is the other way round, so
durations in nanoseconds are bytes and floating-point operations.
"""

from functools import cache
from pathlib import Path

import pytest
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from servesim.cost.roofline import Roofline, RooflineTimer
from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.model.attention import Attention
from servesim.model.layer import Layer
from servesim.model.mlp import MLP
from servesim.model.spec import ModelSpec
from servesim.records import NO_DECODES, Decodes, StepPlan, Work

NS = 1000  # picoseconds
CONF = Path(__file__).parents[3] / "conf" / "model"
EXACT = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 0.0)
READS = GPU("reads", 1.0, 1.0, {"bf16": 1e12}, 1e12)
FLOPS = GPU("flops", 1.0, 1e15, {"bf16": 0.001, "fp8": 0.002}, 1e12)
H200 = GPU("H200 SXM", 140.4, 4800, {"bf16": 989.4, "fp8": 1978.9}, 450)


def timer(name: str, gpu: GPU, tp: int = 1) -> RooflineTimer:
    return bound_to(name, gpu.name, tp)


@cache
def bound_to(name: str, gpu: str, tp: int) -> RooflineTimer:
    model = instantiate(OmegaConf.load(CONF / f"{name}.yaml"), _convert_="all")
    (found,) = (known for known in (READS, FLOPS, H200) if known.name == gpu)
    return EXACT.bind(Deployment(model, found, tp=tp))


def decode(context: int, drafts: int = 0) -> Work:
    return Work(0, 1 + drafts, context - 1 - drafts, drafts, True)


def chunk(tokens: int, past: int = 0) -> Work:
    return Work(0, tokens, past, 0, False)


def ns(bound: RooflineTimer, *work: Work, decodes: Decodes = NO_DECODES) -> float:
    return bound.step_time(StepPlan(work, decodes=decodes)).duration_ps / NS


class TestMixtral:
    # 32 layers: q, k, v, o of 4096 × (4096 + 1024 + 1024 + 4096), a router of 4096 × 8
    OTHER = 32 * (4096 * 10_240 + 4096 * 8)
    EXPERT = 32 * 3 * 4096 * 14_336
    HEAD = 32_000 * 4096
    KV = 32 * 2 * 8 * 128 * 2

    @pytest.mark.parametrize(
        ("tokens", "experts"), [(1, 2), (2, 8 * (1 - 9 / 16)), (64, 8 * (1 - 0.75**64))]
    )
    def test_decodes_read_the_experts_that_they_reach(self, tokens: int, experts: float) -> None:
        # one token reaches 2 of 8, a second 2 of 8 again: 3.5; 64 all but 8e-8 of them
        step = ns(timer("mixtral_8x7b", READS), decodes=Decodes(tokens, 100 * tokens, 100))
        num_bytes = 2 * (self.OTHER + experts * self.EXPERT + self.HEAD)
        assert step == pytest.approx(num_bytes + self.KV * 100 * tokens, abs=1 * tokens)

    def test_a_token_is_multiplied_by_two_experts(self) -> None:
        step = ns(timer("mixtral_8x7b", FLOPS), chunk(64))
        attention = 32 * 4 * 32 * 128 * (64 * 65 // 2)
        assert step == 2 * 64 * (self.OTHER + 2 * self.EXPERT) + attention

    def test_ranks_share_experts_but_each_has_the_router(self) -> None:
        step = ns(timer("mixtral_8x7b", READS, tp=2), chunk(1))
        router = 32 * 4096 * 8
        num_bytes = self.OTHER - router + 2 * self.EXPERT
        assert step == pytest.approx(num_bytes + 2 * router + self.KV / 2, abs=1)


class TestDeepSeekV3:
    """61 layers, 128 heads; latent 512 + 64, fp8 weights with an fp32 scale per 128 × 128."""

    SLOT = 61 * 576 * 2

    def test_matrices_of_a_token_on_eight_ranks(self) -> None:
        down = 61 * 7168 * (1536 + 576)  # on every rank
        up = 61 * (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)
        dense, shared = 3 * 3 * 7168 * 18_432, 58 * 3 * 7168 * 2048
        experts = 58 * 8 * 3 * 7168 * 2048  # 8 of 256
        router = 58 * 7168 * 256  # 16 bits, on every rank
        fp8 = (down + (up + dense + shared + experts) / 8) * 4097 / 4096
        head = 129_280 * 7168 * 2 / 8
        step = ns(timer("deepseek_v3", READS, tp=8), decode(1))
        assert step == pytest.approx(fp8 + 2 * router + head + self.SLOT, abs=2)

    @pytest.mark.parametrize("tp", [1, 8])
    def test_every_rank_reads_the_whole_latent(self, tp: int) -> None:
        bound = timer("deepseek_v3", READS, tp)
        assert ns(bound, decode(10_001)) - ns(bound, decode(1)) == 10_000 * self.SLOT

    def test_decodes_multiply_by_the_latent(self) -> None:
        # per head and key: q·k over 512 + 64, scores·v over 512
        bound = timer("deepseek_v3", FLOPS)
        grown = ns(bound, decode(1001)) - ns(bound, decode(1))
        assert grown == 1000 * 61 * 128 * 2 * (576 + 512)

    def test_chunks_expand_their_past(self) -> None:
        # per head and key: q·k over 128 + 64, scores·v over 128; a past token: 512 × (128 + 128)
        bound = timer("deepseek_v3", FLOPS)
        grown = ns(bound, chunk(100, 50)) - ns(bound, chunk(100))
        assert grown == 61 * 128 * 2 * (100 * 50 * 320 + 50 * 512 * 256)

    def test_fp8_matrices_run_on_fp8_units(self) -> None:
        active = 61 * (7168 * 2112 + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)
        active += 3 * 3 * 7168 * 18_432 + 58 * 9 * 3 * 7168 * 2048
        router, attention = 58 * 7168 * 256, 61 * 128 * 2 * 320 * 3
        expected = 2 * 2 * (active / 2 + router) + attention
        assert ns(timer("deepseek_v3", FLOPS), chunk(2)) == pytest.approx(expected, abs=1)


class TestSparseAttention:
    def test_an_indexer_reads_all_its_keys_and_the_latents_that_it_picks(self) -> None:
        # DeepSeek-V3.2: keys of 132 bytes, 2,048 latents
        bound = timer("deepseek_v3.2", READS)
        grown = ns(bound, decode(10_000)) - ns(bound, decode(1))
        assert grown == 61 * (132 * 9_999 + 1152 * 2047)

    def test_an_entry_may_stand_for_several_tokens(self) -> None:
        # DeepSeek-V4-Flash: a window of 128 in 43 layers; in 21 a 1,024-byte entry and a 132-byte
        # key per 4 tokens, of which 512 are picked; in 20 an entry per 128, all of them
        bound = timer("deepseek_v4_flash", READS)
        grown = ns(bound, decode(10_000)) - ns(bound, decode(1))
        window = 43 * 1024 * 127
        assert grown == window + 21 * (256 * 2047 + 33 * 9_999) + 20 * 8 * 9_999


class TestWindows:
    """gpt-oss-120b: 18 layers see 128 tokens, 18 all; 2,048 bytes of K and V, 64 heads of 64."""

    KV = 18 * 2048
    KEY = 18 * 4 * 64 * 64

    def test_a_decode_reads_a_window_at_most(self) -> None:
        bound = timer("gpt_oss_120b", READS)
        for context in (2, 127, 128, 129, 5000):
            grown = ns(bound, decode(context)) - ns(bound, decode(1))
            assert grown == self.KV * (context - 1 + min(context, 128) - 1)

    def test_each_draft_sees_a_window_of_its_own(self) -> None:
        # the last of 1,000 tokens: 998, 999 and 1,000 keys, or 128 each, of 130 tokens together
        bound = timer("gpt_oss_120b", READS)
        grown = ns(bound, decode(1000, 2)) - ns(bound, decode(3, 2))
        assert grown == self.KV * (997 + 130 - 3)
        bound = timer("gpt_oss_120b", FLOPS)
        keys = ns(bound, decode(1000, 2)) - ns(bound, decode(3, 2))
        assert keys == self.KEY * (998 + 999 + 1000 - 6 + 3 * 128 - 6)

    def test_decodes_of_a_group_fill_the_windows_together(self) -> None:
        # 290 and 10 tokens: 128 + 10 in windows, of which only 300 and 2 windows are known
        bound = timer("gpt_oss_120b", READS)
        grown = ns(bound, decodes=Decodes(2, 300, 290)) - ns(bound, decodes=Decodes(2, 2, 1))
        assert grown == self.KV * (300 - 2 + 256 - 2)
        assert ns(bound, decode(290), decode(10)) == ns(bound, decodes=Decodes(2, 300, 290))

    @pytest.mark.parametrize(
        ("tokens", "past", "keys", "read"),
        [
            (100, 0, 100 * 101 // 2, 100),
            (100, 100, sum(range(101, 129)) + 72 * 128, 200),  # from 128 keys on the first is lost
            (100, 1000, 100 * 128, 227),  # the first sees 128, each further one one more
        ],
    )
    def test_a_chunk_is_exact(self, tokens: int, past: int, keys: int, read: int) -> None:
        full = tokens * past + tokens * (tokens + 1) // 2
        alone = tokens * (tokens + 1) // 2
        bound = timer("gpt_oss_120b", FLOPS)
        grown = ns(bound, chunk(tokens, past)) - ns(bound, chunk(tokens))
        assert grown == self.KEY * (full + keys - 2 * alone)
        bound = timer("gpt_oss_120b", READS)
        grown = ns(bound, chunk(tokens, past)) - ns(bound, chunk(tokens))
        assert grown == self.KV * (past + read - tokens)

    def test_a_group_grows_until_its_windows_are_full(self) -> None:
        # 3 windows are 384 tokens; 371 + 3 j is within them up to j = 4, and step 5 is beyond
        bound = timer("gpt_oss_120b", H200)
        first = bound.decode_run(Decodes(3, 371, 200), 1000)
        assert first.steps == 5
        assert bound.decode_run(Decodes(3, 386, 205), 1000).steps == 1000
        full = bound.decode_run(Decodes(3, 386, 205), 1000)
        assert first.increment_ps == 2 * full.increment_ps

    def test_narrow_experts_are_multiplied_in_16_bits(self) -> None:
        # 36 layers of width 2,880: q and o of 4,096, k and v of 512, router of 128, 4 experts
        layer = 2880 * (2 * 4096 + 2 * 512 + 128) + 4 * 3 * 2880 * 2880
        attention = 2 * self.KEY * 3
        assert ns(timer("gpt_oss_120b", FLOPS), chunk(2)) == 2 * 2 * 36 * layer + attention

    def test_gemma_sees_all_in_every_sixth_layer_only(self) -> None:
        # 10 of 62 layers; the others see 1,024 tokens; 16 KV heads of 128
        bound = timer("gemma3_27b", READS)
        grown = ns(bound, decode(100_000)) - ns(bound, decode(1))
        assert grown == 2 * 16 * 128 * 2 * (10 * 99_999 + 52 * 1023)


class TestQwen3Next:
    """36 of 48 layers are gated delta nets with 32 matrices of 128 × 128 each."""

    def test_a_decode_reads_and_writes_the_states(self) -> None:
        delta = 36 * 2048 * (2 * 2048 + 2 * 4096 + 2 * 32 + 4096)
        full = 12 * 2048 * (2 * 4096 + 2 * 512 + 4096)  # the query's gate is as wide as the query
        expert = 3 * 2048 * 512
        mlp = 48 * (2048 * 512 + expert + 2048 + 10 * expert)  # router, shared, its gate, 10 of 512
        states = 36 * 2 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)  # bf16, and three inputs of 8,192
        head, kv = 151_936 * 2048, 12 * 2048 * 1000
        expected = 2 * (delta + full + mlp + head) + states + kv
        assert ns(timer("qwen3_next_80b_a3b", READS), decode(1000)) == pytest.approx(
            expected, abs=1
        )

    def test_a_state_is_moved_once_per_sequence_and_step(self) -> None:
        bound = timer("qwen3_next_80b_a3b", READS)
        together = ns(bound, chunk(100))
        apart = ns(bound, *[chunk(2)] * 50)
        states = 36 * 2 * (32 * 128 * 128 * 2 + 3 * 8192 * 2)
        assert apart - together == pytest.approx(49 * states, abs=1)

    def test_a_token_passes_each_state_three_times(self) -> None:
        # retrieved, updated and read out; and attention to 3 + 4 keys instead of 1 + 2
        bound = timer("qwen3_next_80b_a3b", FLOPS)
        linear = 2 * 2 * (ACTIVE_QWEN3_NEXT + 36 * 3 * 32 * 128 * 128)
        grown = ns(bound, chunk(4)) - ns(bound, chunk(2))
        assert grown == pytest.approx(linear + 12 * 4 * 16 * 256 * 7, abs=1)


ACTIVE_QWEN3_NEXT = (
    36 * 2048 * (2 * 2048 + 2 * 4096 + 2 * 32 + 4096)
    + 12 * 2048 * (2 * 4096 + 2 * 512 + 4096)
    + 48 * (2048 * 512 + 2048 + 11 * 3 * 2048 * 512)
)


def test_a_layer_with_half_the_work_reduces_once() -> None:
    attention = Attention(2, 2, 10, 10)
    layers = (Layer(attention, None, 0), Layer(None, MLP(80), 0), Layer(attention, MLP(80), 0))
    model = ModelSpec("halves", 3, 100, 2, 2, 10, 80, 1000, False, 4096, layers=layers)
    cost = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 1.0)
    free = GPU("free", 1.0, 1e15, {"bf16": 1e12}, 1e12)
    step = cost.bind(Deployment(model, free, tp=2)).step_time(StepPlan((chunk(1),)))
    assert step.duration_ps == 4 * 10**12


KINDS = (
    "mixtral_8x7b",
    "deepseek_v3",
    "deepseek_v3.2",
    "deepseek_v4_flash",
    "gpt_oss_120b",
    "gemma3_27b",
    "qwen3_next_80b_a3b",
    "nemotron3_nano_30b_a3b",
)


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=60)
@given(
    decodes=st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 5)), max_size=5),
    chunks=st.lists(st.tuples(st.integers(2, 900), st.integers(0, 4000)), min_size=1, max_size=3),
    more=st.integers(1, 300),
)
def test_more_tokens_longer_contexts_and_more_requests_never_take_less(
    name: str, decodes: list[tuple[int, int]], chunks: list[tuple[int, int]], more: int
) -> None:
    bound = timer(name, H200)
    (context, drafts), rest = (decodes or [(7, 0)])[0], decodes[1:]
    (tokens, past), others = chunks[0], chunks[1:]
    same = [decode(c + d, d) for c, d in rest] + [chunk(n, p) for n, p in others]

    def step(more_context: int = 0, more_drafts: int = 0, longer: int = 0, later: int = 0) -> float:
        number = drafts + more_drafts
        one = decode(context + drafts + more_drafts + more_context, number)
        return ns(bound, *same, one, chunk(tokens + longer, past + later))

    assert ns(bound, *same) <= step()
    for grown in (step(more), step(0, more), step(0, 0, more), step(0, 0, 0, more)):
        assert step() <= grown
