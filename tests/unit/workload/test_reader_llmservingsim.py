import json
import re

import pytest

from servesim.content import TraceBlocks, Unique
from servesim.errors import MissingDataError, TraceError, UnknownChoiceError
from servesim.units import PS_PER_S
from servesim.workload.readers.llmservingsim import LLMServingSimBlocks, LLMServingSimRun
from validation.data import source_dir

LENGTHS = [(32, 17), (40, 8), (20, 30)]
QUEUED = [500.25, 500.5, 501.0]


def run_file(tmp_path, lengths=LENGTHS, queued=QUEUED, **changes):
    rows = [
        {
            "request_id": f"bench-{i}",
            "input_toks": given,
            "output_toks": taken,
            "arrival_time": 1.7e9 + i,
            "queued_ts": when,
            "scheduled_ts": when + 0.1,
            "first_token_ts": when + 0.2,
            "last_token_ts": when + 0.3,
        }
        for i, ((given, taken), when) in enumerate(zip(lengths, queued, strict=True))
    ]
    rows[-1] |= changes
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def blocks_file(tmp_path, lengths=LENGTHS, **changes):
    shared = [0, 1]  # the first two requests have their first 32 tokens in common
    rows = []
    for i, (given, taken) in enumerate(lengths):
        own = [100 * i + k for k in range(2, (given + taken) // 16)]
        rows.append(
            {
                "idx": i,
                "input_toks": given,
                "output_toks": taken,
                "arrival_time_ns": 10**9 + i,
                "hash_ids": (shared if i < 2 else [200, 201]) + own,
                "n_full_prompt_blocks": given // 16,
            }
        )
    rows[-1] |= changes
    path = tmp_path / "x.blocks16.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_run_comes_by_the_clock_of_its_token_times(tmp_path):
    requests = LLMServingSimRun(path=run_file(tmp_path)).load(0).requests
    assert [r.arrival_ps / PS_PER_S for r in requests] == [0, 0.25, 0.75]
    assert [(r.prompt_tokens, r.output_tokens) for r in requests] == LENGTHS
    assert [r.name for r in requests] == ["bench-0", "bench-1", "bench-2"]
    assert {r.content for r in requests} == {Unique()}


def test_the_front_ends_clock_can_be_chosen_and_no_third_one(tmp_path):
    path = run_file(tmp_path)
    requests = LLMServingSimRun(path=path, clock="arrival_time").load(0).requests
    assert [r.arrival_ps / PS_PER_S for r in requests] == [0, 1, 2]
    with pytest.raises(UnknownChoiceError, match="unknown clock 'sent_ts'"):
        LLMServingSimRun(path=path, clock="sent_ts")


def test_clocks_are_never_mixed(tmp_path):
    with pytest.raises(TraceError, match=r"requests\.jsonl:3: queued_ts=1.*another clock"):
        LLMServingSimRun(path=run_file(tmp_path, queued_ts=1.7e9)).load(0)


def test_rows_that_overtook_each_other_are_sorted_with_their_blocks_and_counted(tmp_path):
    path, blocks = run_file(tmp_path, queued=[500.5, 500.25, 501.0]), blocks_file(tmp_path)
    load = LLMServingSimRun(path=path, blocks_path=blocks).load(0)
    assert [r.name for r in load.requests] == ["bench-1", "bench-0", "bench-2"]
    assert [r.rid for r in load.requests] == [0, 1, 2]
    assert [r.arrival_ps / PS_PER_S for r in load.requests] == [0, 0.25, 0.75]
    assert load.requests[0].content == TraceBlocks((0, 1, 102), 16)
    assert load.counts["rows_out_of_order"] == 1
    assert any("rows sorted" in note for note in load.notes)


def test_a_run_joined_to_its_workload_shares_what_the_workload_shares(tmp_path):
    load = LLMServingSimRun(path=run_file(tmp_path), blocks_path=blocks_file(tmp_path)).load(0)
    one, two, three = (r.content.block_keys(r.rid, 0, 3, 16) for r in load.requests)
    assert one[:2] == two[:2]
    assert one[2] != two[2]
    assert not set(three) & set(one + two)


@pytest.mark.parametrize(
    ("lengths", "changes", "reason"),
    [
        (LENGTHS[:2], {}, r"has 2 requests, .*requests\.jsonl has 3"),
        (LENGTHS, {"input_toks": 21}, r"x\.blocks16\.jsonl:3: input_toks=21, but 20 in row 3"),
        (LENGTHS, {"output_toks": 31}, r"x\.blocks16\.jsonl:3: output_toks=31, but 30 in row 3"),
        (LENGTHS, {"hash_ids": [7]}, r"x\.blocks16\.jsonl:3: 1 block ids, but 50 tokens make 3"),
        (LENGTHS, {"hash_ids": None}, r"x\.blocks16\.jsonl:3: hash_ids='None' is not a list"),
    ],
)
def test_files_that_do_not_belong_together(tmp_path, lengths, changes, reason):
    blocks = blocks_file(tmp_path, lengths, **changes)
    with pytest.raises(TraceError, match=reason):
        LLMServingSimRun(path=run_file(tmp_path), blocks_path=blocks).load(0)


def test_a_workload_by_itself(tmp_path):
    requests = LLMServingSimBlocks(path=blocks_file(tmp_path)).load(0).requests
    assert [r.arrival_ps for r in requests] == [10**12, 10**12 + 1000, 10**12 + 2000]
    assert [len(r.content.ids) for r in requests] == [3, 3, 3]


@pytest.mark.parametrize(
    ("model", "workload", "late"),
    [
        ("Llama-3.1-8B", "sharegpt-llama-3.1-8b-300-sps10.blocks16.jsonl", 0),
        ("Qwen3-30B-A3B-Instruct-2507", None, 29),  # two engines, so requests overtake
    ],
)
def test_the_public_runs(model, workload, late):
    try:
        source = source_dir("llmservingsim")
        path = source / "bench/examples/RTXPRO6000" / model / "vllm/requests.jsonl"
        blocks = None if workload is None else str(source / "workloads" / workload)
        load = LLMServingSimRun(path=str(path), blocks_path=blocks).load(0)
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert len(load.requests) == 300
    assert load.counts.get("rows_out_of_order", 0) == late
    assert re.search(r"10\.2\d requests/s", load.notes[-1])
    assert load.requests[0].name == "bench-0"
