"""Costs of a rank whose experts are split over data-parallel ranks, worked out by hand."""

from pathlib import Path

import pytest
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from kernel_costs import kernels
from omegaconf import OmegaConf

from servesim.cost.lockstep import SharingTimer
from servesim.cost.roofline import Roofline
from servesim.deployment import Deployment
from servesim.errors import SettingError
from servesim.hardware.gpu import GPU
from servesim.records import Decodes, StepPlan, Work

CONF = Path(__file__).parents[3] / "conf" / "model"
MODEL = instantiate(OmegaConf.load(CONF / "qwen3_30b_a3b.yaml"), _convert_="all")
LAYERS, HIDDEN, EXPERTS, WIDTH = 48, 2048, 128, 768
CARD = GPU("card", 96.0, 1.0, {"bf16": 1.0}, 1.0)
NS = 1000  # picoseconds

# a token of the share is a microsecond, an expert of it 10; a token on the link 1, and 9 more
TABLES = {
    "moe": {"tokens": [1, 101], "experts": [0, 128], "us": [[1, 1281], [101, 1381]]},
    "exchange": {2: {"tokens": [1, 101], "us": [10, 110]}},
}


def rank(dp=2, **changes):
    tables = {**kernels().tables, **TABLES, **changes}
    cost = kernels(tables=tables, allow_mismatch=True)
    return cost.bind(Deployment(MODEL, CARD, dp=dp))


def reached(tokens):
    return EXPERTS * (1 - (15 / 16) ** tokens)


def parts(own, other):
    return rank().beside((other,)).parts_us(StepPlan((Work(0, own, 0, 0, False),)))


def test_all_ranks_run_the_graph_of_the_largest_batch():
    # 3 and 2 tokens in the graph of 4: 8 tokens in all, of which each rank has a share
    found = parts(3, 2)
    assert found["dense"] == pytest.approx(303)
    assert found["moe"] == pytest.approx(4 + 10 * reached(8) / 2)
    assert found["exchange"] == pytest.approx(9 + 8)
    assert parts(2, 3)["moe"] == pytest.approx(found["moe"])


def test_beyond_the_largest_graph_no_rank_runs_one_and_the_busiest_link_counts():
    # 20 and 3 tokens, the latter padded to 4: 24 in all; 20 over a link, as of 2 ranks of 20
    large, small = parts(20, 3), parts(3, 20)
    assert large["dense"] == pytest.approx(319)
    assert small["dense"] == pytest.approx(303)
    assert large["moe"] == pytest.approx(12 + 10 * reached(24) / 2)
    assert large["exchange"] == small["exchange"] == pytest.approx(9 + 40)
    # 100 + 2 + 30, half a microsecond per token, and 50 where no graph is run
    assert large["host"] == pytest.approx(132 + 10 + 50)
    assert small["host"] == pytest.approx(132 + 1.5 + 50)


@given(st.integers(1, 64), st.integers(1, 100), st.integers(1, 900), st.integers(1, 300))
def test_a_run_beside_others_takes_the_time_of_its_steps(seqs, other, mean, steps):
    timer = rank().beside((other,))
    decodes = Decodes(seqs, seqs * mean, mean + 7)
    run = timer.decode_run(decodes, steps)
    for step in {0, run.steps // 2, run.steps - 1}:
        plan = StepPlan((), decodes=decodes.later(step))
        assert run.at(step) == timer.step_time(plan).duration_ps


def test_tables_without_the_exchange_of_so_many_ranks_are_refused():
    with pytest.raises(SettingError, match=r"dp=4: .*tables\.exchange.*nearest: 2"):
        rank(dp=4)
    with pytest.raises(SettingError, match=r"dp=2: .*nearest: 1"):
        rank(exchange=None)


def test_one_rank_needs_no_exchange():
    alone = rank(dp=1, exchange=None)
    assert not isinstance(alone, SharingTimer)
    found = alone.parts_us(StepPlan((Work(0, 3, 0, 0, False),)))
    assert found["moe"] == pytest.approx(4 + 10 * reached(4))


@pytest.mark.parametrize(
    ("exchange", "told"),
    [
        ([1, 2], "must be a mapping of ranks"),
        ({1: TABLES["exchange"][2]}, "tables.exchange=1"),
        ({2: {"tokens": [1, 2]}}, "tables.exchange.2.us"),
    ],
)
def test_an_exchange_of_another_shape_is_refused(exchange, told):
    with pytest.raises(SettingError, match=told):
        rank(exchange=exchange)


READS = GPU("reads", 96.0, 1.0, {"bf16": 1e12}, 1e12)  # a byte a nanosecond, all else nothing
LINKS = GPU("links", 96.0, 1e12, {"bf16": 1e12}, 1.0)
EXACT = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 0.0)


def roofline_ns(gpu, dp, own, others=(), cost=EXACT):
    timer = cost.bind(Deployment(MODEL, gpu, dp=dp))
    chunk = Work(0, own, 0, 0, False)
    return timer.beside(others).step_time(StepPlan((chunk,))).duration_ps / NS


def test_a_rank_reads_its_share_of_the_experts_that_all_tokens_reach():
    one = LAYERS * 3 * HIDDEN * WIDTH * 2  # bytes of an expert in all layers
    alone = roofline_ns(READS, 1, 5) - one * reached(5)
    assert roofline_ns(READS, 2, 5, (7,)) - alone == pytest.approx(one * reached(12) / 2)


def test_every_moe_layer_sends_the_other_ranks_tokens_there_and_back():
    # all-gather and reduce-scatter of 12 tokens, 4096 bytes each, half of them over the link
    sent = LAYERS * 2 * 12 * 4096 / 2
    assert roofline_ns(LINKS, 2, 5, (7,)) == pytest.approx(sent, rel=1e-4)
    slow = Roofline(1.0, 1.0, 0.0, 0.0, 1.0, 1e-6)
    waits = roofline_ns(LINKS, 2, 5, (7,), slow) - roofline_ns(LINKS, 2, 5, (7,))
    assert waits == pytest.approx(2 * LAYERS * 1000)
