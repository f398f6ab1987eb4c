"""Kernel tables: steps that are added up by hand."""

import dataclasses

import pytest
from costs import CARD, MODEL, ON_CARD, US, chunk, decode
from kernel_costs import kernels, timer

from servesim.deployment import Deployment
from servesim.errors import CostMismatchError, SettingError
from servesim.model.attention import Attention
from servesim.model.layer import Layer
from servesim.model.mlp import MoE
from servesim.records import Decodes, StepPlan, Work

QUANTUM_US = 2**14 / US  # to which attention of decodes is rounded down
NO_HOST = {"us": 0}


def us(timer, *work: Work) -> float:
    return timer.step_time(StepPlan(work)).duration_ps / US


def attention(timer, *work: Work) -> float:
    return timer.parts_us(StepPlan(work))["attention"]


def decodes(seqs: int, context: int) -> tuple[Work, ...]:
    return tuple(decode(rid, context) for rid in range(seqs))


def just_below(expected: float):
    return pytest.approx(expected - QUANTUM_US / 2, abs=QUANTUM_US / 2 + 1e-9)


def test_one_decode():
    # dense 300, head 700, attention 11; host 100 + 2 + 0.5, exposed 30
    assert us(timer(), decode(0, 128)) == just_below(1143.5)


def test_parts_add_up_to_the_step():
    plan = StepPlan((*decodes(3, 200), chunk(9, 40, 8, samples=True)))
    parts = timer().parts_us(plan)
    assert list(parts) == ["dense", "head", "attention", "all_reduce", "moe", "host"]
    assert sum(parts.values()) == pytest.approx(timer().step_time(plan).duration_ps / US)
    # 43 tokens; 4 rows; 4 requests; no graph for 43 tokens
    assert parts["dense"] == 342
    assert parts["head"] == 701.5
    assert parts["host"] == 100 + 4 * 2 + 43 * 0.5 + 30 + 50


def test_a_graph_runs_as_many_tokens_as_it_was_captured_for():
    captured = timer(host=NO_HOST)
    parts = [captured.parts_us(StepPlan(decodes(n, 16))) for n in (9, 16, 17)]
    assert [p["dense"] for p in parts] == [315, 315, 316]
    assert [p["head"] for p in parts] == [707.5, 707.5, 708]
    eager = timer(host=NO_HOST, graphs={"sizes": []}).parts_us(StepPlan(decodes(9, 16)))
    assert (eager["dense"], eager["head"]) == (308, 704)


def test_a_step_beyond_the_largest_graph_is_launched_kernel_by_kernel():
    small, large = (
        timer(host={"eager_us": 50}).parts_us(StepPlan(decodes(n, 16))) for n in (16, 17)
    )
    assert (small["host"], large["host"]) == (0, 50)
    assert timer(host={"eager_us": 50}, graphs={"sizes": []}).parts_us(
        StepPlan(decodes(1, 16))
    )["host"] == 50  # fmt: skip


def test_the_gpu_waits_for_launches_where_it_is_the_faster():
    # beyond the largest graph of 16
    gpu_us = us(timer(host=NO_HOST), *decodes(17, 16))
    layers = MODEL.num_layers
    for launch_us in (1, gpu_us + 60):
        host = {"launch_us_per_layer": launch_us / layers}
        slow = timer(host=host)
        assert us(slow, *decodes(16, 16)) == us(timer(host=NO_HOST), *decodes(16, 16))
        assert us(slow, *decodes(17, 16)) == pytest.approx(max(gpu_us, launch_us))
        parts = slow.parts_us(StepPlan(decodes(17, 16)))
        assert parts["host"] == pytest.approx(max(0, launch_us - gpu_us), abs=1e-3)


def test_without_sampled_rows_there_is_no_head():
    assert timer().parts_us(StepPlan((chunk(0, 16),)))["head"] == 0


def test_an_empty_step_takes_the_host():
    assert us(timer()) == 130
    assert us(timer(overlaps=True)) == 130


def test_decodes_are_read_at_their_total_context():
    timer_ = timer()
    assert attention(timer_, *decodes(8, 1024)) == just_below(90)
    # all 4,608 tokens, halfway from 1,024 to 8,192: in the row of 8, in that of 64, between both
    assert attention(timer_, *decodes(8, 576)) == just_below(55)
    assert attention(timer_, *decodes(64, 72)) == just_below(52.5)
    assert attention(timer_, *decodes(36, 128)) == just_below(53.75)


def test_a_short_conversation_does_not_hide_a_long_one():
    alone = attention(timer(), decode(0, 1024))
    assert alone == just_below(20)
    assert attention(timer(), decode(0, 1024), decode(1, 16)) >= alone


def test_the_longest_decode_alone_is_the_least():
    rows = {"seqs": [1, 8], "context": [128, 1024], "us": [[10, 80], [20, 81]]}
    # 1,024 tokens are 20 µs for eight sequences, 80 µs for a lone one: its KV is not split
    skewed = timer(decode_attention=rows)
    assert attention(skewed, decode(0, 1024)) == just_below(80)
    assert attention(skewed, *decodes(8, 128)) == just_below(20)
    assert attention(skewed, decode(0, 1024), *decodes(7, 128)) == just_below(80)


def test_unmeasured_contexts_go_on_with_the_last_slope():
    timer_ = timer()
    slope = (85 - 20) / (8192 - 1024)
    assert attention(timer_, *decodes(64, 256)) == just_below(85 + slope * 8192)
    # of more sequences than measured, each costs what the last 56 do at the shortest contexts
    assert attention(timer_, *decodes(128, 64)) == just_below(85 + 64 * (20 - 12) / 56)


def test_uneven_decodes():
    """From 4 on, the longest counts half once more, by what it exceeds the mean by."""
    uneven = timer(uneven={"seqs_equivalent": 0.5, "whole_from_seqs": 4})
    # 7 × 512 and 1,024: mean 576, exceeded by 448, so as if 224 tokens more
    batch = (*decodes(7, 512), decode(9, 1024))
    even = timer()
    slope = (90 - 20) / (8192 - 1024)
    assert attention(uneven, *batch) == just_below(20 + slope * (7 * 512 + 1024 + 224 - 1024))
    assert attention(uneven, *decodes(8, 512)) == attention(even, *decodes(8, 512))
    few = (decode(0, 1024), decode(1, 16), decode(2, 16))
    assert attention(uneven, *few) == attention(even, *few)


def test_one_chunk():
    timer_ = timer()
    assert attention(timer_, chunk(0, 16)) == just_below(10)  # as a decode of 16 tokens; alone 8
    assert attention(timer_, chunk(0, 256)) == 40
    assert attention(timer_, chunk(0, 256, 512)) == 200
    # per token 8 / 16 and 40 / 256: fewer in the larger chunk, so linear
    assert attention(timer_, chunk(0, 136)) == 24
    # after 1,024 tokens 12 / 16 and 360 / 256: more, so per token, (0.75 + 1.40625) / 2 · 136
    assert attention(timer_, chunk(0, 136, 1024)) == 146.625
    # beyond the table
    assert attention(timer_, chunk(0, 496)) == 72
    assert attention(timer_, chunk(0, 256, 2048)) == 680


def test_chunks_and_decodes_are_added_up():
    timer_ = timer()
    decoding = attention(timer_, *decodes(8, 128))
    # 40 and 200, but for a second launch, the 8 of the smallest call
    assert attention(timer_, chunk(9, 256), chunk(10, 256, 512)) == 232
    both = attention(timer_, *decodes(8, 128), chunk(9, 256), chunk(10, 256, 512))
    assert both == pytest.approx(232 + decoding / 2)


MIXED = {
    "chunk": [16, 256],
    "past": [0, 1024],
    "seqs": [1, 8],
    "context": [128, 1024],
    "us": [
        [[[20, 30], [30, 60]], [[24, 34], [34, 64]]],
        [[[60, 70], [70, 100]], [[400, 410], [410, 440]]],
    ],
}


def test_a_chunk_and_decodes_in_one_call():
    timer_ = timer(mixed_attention=MIXED)
    assert attention(timer_, decode(0, 128), chunk(9, 16)) == 20
    assert attention(timer_, decode(0, 128), chunk(9, 136)) == 40
    assert attention(timer_, *decodes(8, 128), chunk(9, 256, 512)) == 240
    # one of them is 30 longer beside the decodes, or the other 40; alone they are 232
    assert attention(timer_, *decodes(8, 128), chunk(9, 256), chunk(10, 256, 512)) == 272
    # beyond the table, by what the chunk alone takes longer
    assert attention(timer_, decode(0, 128), chunk(9, 496)) == 92
    assert attention(timer_, chunk(9, 256)) == 40
    kv = {("kv" if key == "context" else key): value for key, value in MIXED.items()}
    assert attention(timer(mixed_attention=kv), decode(0, 128), chunk(9, 16)) == 20


def test_drafts_are_decodes_with_more_tokens():
    plan = StepPlan((decode(0, 131, drafts=3),))
    parts = timer().parts_us(plan)
    assert (parts["dense"], parts["head"]) == (303, 701.5)
    assert parts["attention"] == just_below(11 + 9 * 3 / 896)


def test_an_engine_may_need_less_for_an_all_reduce_than_it_takes_alone():
    table = {"tokens": [1, 3], "us": [10, 14]}
    for share, expected in ((1.0, [10, 12, 16]), (0.5, [5, 6, 8]), (0, [0, 0, 0])):
        bound = timer(all_reduce=table, all_reduce_share=share)
        plans = [StepPlan(decodes(seqs, 20)) for seqs in (1, 2, 4)]
        assert [bound.parts_us(plan)["all_reduce"] for plan in plans] == expected
    assert timer(all_reduce_share=0.5).parts_us(plans[0])["all_reduce"] == 0  # one rank
    with pytest.raises(SettingError, match="all_reduce_share=-1"):
        kernels(all_reduce_share=-1)


def test_all_reduces_and_routed_experts():
    experts = (Layer(Attention(4, 2, 16, 16), MoE(4, 2, 32), 0),) * 2
    model = dataclasses.replace(MODEL, layers=experts)
    # one token reaches 2 of 4, two reach 3, four 3.75
    table = {"tokens": [1, 5], "experts": [2, 4], "us": [[100, 200], [104, 204]]}
    cost = kernels(moe=table, all_reduce={"tokens": [1, 3], "us": [10, 14]})
    bound = cost.bind(Deployment(model, CARD))
    parts = [bound.parts_us(StepPlan(decodes(n, 16))) for n in (1, 2, 3)]
    assert [p["moe"] for p in parts] == [100, 151, 190.5]  # three run as four
    assert [p["all_reduce"] for p in parts] == [10, 12, 16]
    with pytest.raises(SettingError, match=r"tables\.moe=.*must be null: the model has no routed"):
        cost.bind(ON_CARD)
    with pytest.raises(SettingError, match=r"tables\.moe=None: must hold a table: the model has"):
        kernels().bind(Deployment(model, CARD))


def test_an_overlapped_host_counts_where_it_is_longer():
    gpu = 300 + 700 + 11
    busy = {"us": 1200, "exposed_us": 30}
    assert us(timer(overlaps=True), decode(0, 128)) == just_below(gpu + 30)
    assert us(timer(overlaps=True, host=busy), decode(0, 128)) == 1230
    assert us(timer(overlaps=False, host=busy), decode(0, 128)) == just_below(gpu + 1230)
    assert us(timer(overlaps=True, host=busy), chunk(0, 512)) == 1230


def test_a_run_ends_where_the_gpu_overtakes_the_host():
    # 1,011 µs of GPU at 128 tokens, growing by 9 µs in 896 steps, and 1,015 µs of host
    bound = timer(overlaps=True, host={"us": 1015})
    lone = Decodes(1, 136, 136)
    run = bound.decode_run(lone, 2000)
    assert run.increment_ps == 0
    seen = 0
    while not run.increment_ps and seen < 2000:
        seen += run.steps
        run = bound.decode_run(lone.later(seen), 2000)
    assert 136 + seen == pytest.approx(128 + 4 * 896 / 9, abs=20)
    assert bound.step_time(StepPlan((), decodes=lone.later(seen + 32))).duration_ps > 1015 * US


def test_steps_outside_of_what_was_measured_are_told():
    bound = timer()
    assert bound.step_time(StepPlan(decodes(2, 1024))).outside == ()
    assert bound.step_time(StepPlan(decodes(65, 16))).outside == ("sampled_rows", "decode_seqs")
    run = bound.decode_run(Decodes(1, 1020, 1020), 100)
    assert run.outside == ()
    assert 1020 + run.steps - 1 <= 1024
    assert kernels().axis_range("tokens") == (1, 512)


def test_it_holds_for_what_was_measured():
    cost = kernels()
    assert cost.mismatch(ON_CARD) == ""
    other = dataclasses.replace(ON_CARD, kv_dtype="fp8")
    assert cost.mismatch(other) == "kv_dtype fp8 instead of bf16"
    with pytest.raises(CostMismatchError, match="kv_dtype fp8 instead of bf16"):
        cost.bind(other)
    assert kernels(allow_mismatch=True).bind(other).step_time(StepPlan(decodes(1, 16)))
    assert cost.describe() == (
        "kernel tables of vllm 0.19.0, toy on card tp1 bf16 (r 0123456); "
        "held-out step error median 2.0%, p90 6.0%"
    )
