"""Every number of the summary, worked out again from the requests and steps of the run."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import servesim
from servesim import Result

CHOICES = ("model", "hardware", "cost", "workload", "scheduler", "order", "victim", "admission")
LABELS = (*CHOICES, "tp", "rate_rps", "seed")
HOW = ("steps_skipped",)  # how a run was carried out, not what happened in it
PERCENTILES = (50, 90, 99)
BLOCKS = 60
SLO_TTFT_S, SLO_TPOT_S = 7.21, 0.016  # a few requests are just within, a few just not

# memory for a few requests of 50: long waits, chunked prompts, shared prefixes, some too long
PRESSURE = (
    "cost=roofline",
    "workload=shared_prefix",
    "workload.num_requests=50",
    "workload.rate_rps=40",
    "workload.prompt.median_tokens=150",
    "workload.prompt.min_tokens=70",
    "workload.prompt.max_tokens=900",
    "workload.output.median_tokens=120",
    "workload.prefix.prefix_tokens=64",
    "workload.prefix.num_groups=3",
    "scheduler.max_num_batched_tokens=192",
    "max_model_len=700",
    f"metrics.goodput.ttft_s={SLO_TTFT_S}",
    f"metrics.goodput.tpot_s={SLO_TPOT_S}",
    f"kv.num_gpu_blocks={BLOCKS}",
)
CUT = (*PRESSURE, "until_s=8")
AMPLE = (*PRESSURE, "kv.num_gpu_blocks=3000")
RUNS = {"under memory pressure": PRESSURE, "cut while many wait": CUT, "with room for all": AMPLE}


@cache
def run(*overrides: str, stepwise: bool) -> Result:
    """A run with its steps."""
    return servesim.simulate(*overrides, f"stepwise={str(stepwise).lower()}", keep_steps=True)


def every_run(test: Callable[..., None]) -> Callable[..., None]:
    named = pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
    both = pytest.mark.parametrize("stepwise", [True, False], ids=["stepped", "skipped"])
    return named(both(test))


def latencies(requests: pd.DataFrame) -> dict[str, object]:
    reached = requests[requests["first_token_s"].notna()]
    ended = requests[requests["status"] == "finished"]
    longer = reached[reached["output_tokens"] > 1]
    decoding = longer["last_token_s"] - longer["first_token_s"]
    values = {
        "ttft": reached["first_token_s"] - reached["arrival_s"],
        "tpot": decoding / (longer["output_tokens"] - 1),
        "e2e": ended["last_token_s"] - ended["arrival_s"],
        "queue": (requests["scheduled_s"] - requests["arrival_s"]).dropna(),
    }
    row = {"itl_mean_s": decoding.sum() / (longer["output_tokens"] - 1).sum()}
    for name, column in values.items():
        row[f"{name}_mean_s"] = np.mean(column)
        for q in PERCENTILES:
            row[f"{name}_p{q}_s"] = np.percentile(column, q)
    return row


def outcomes(requests: pd.DataFrame, duration_s: float) -> dict[str, object]:
    counts = requests["status"].value_counts()
    ended = requests["status"] == "finished"
    prompt = int(requests.loc[requests["first_token_s"].notna(), "prompt_tokens"].sum())
    output = int(requests["output_tokens"].sum())
    good = ended & (requests["first_token_s"] - requests["arrival_s"] <= SLO_TTFT_S)
    decoding = requests["last_token_s"] - requests["first_token_s"]
    good &= decoding <= SLO_TPOT_S * (requests["output_tokens"] - 1)
    row: dict[str, object] = {
        "requests": len(requests),
        "duration_s": duration_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "request_throughput_rps": ended.sum() / duration_s,
        "output_throughput_tokens_per_s": output / duration_s,
        "total_throughput_tokens_per_s": (prompt + output) / duration_s,
        "goodput_rps": good.sum() / duration_s,
        "slo_attainment": good.sum() / len(requests),
        "slo_ttft_s": SLO_TTFT_S,
        "slo_tpot_s": SLO_TPOT_S,
    }
    for status in ("finished", "rejected", "unfinished", "failed"):
        row[status] = int(counts.get(status, 0))
    return row


def engine(requests: pd.DataFrame, steps: pd.DataFrame, blocks: int) -> dict[str, object]:
    """Batch and cache. Of the blocks one is the null block, which nobody holds."""
    busy_s, usable = steps["duration_s"].sum(), blocks - 1
    tokens = int((steps["prefill_tokens"] + steps["decode_tokens"]).sum())
    cached, recomputed = requests["cached_tokens"].sum(), requests["recomputed_tokens"].sum()
    asked = requests.loc[requests["scheduled_s"].notna(), "prompt_tokens"].sum()
    return {
        "steps": len(steps),
        "batch_size_mean": (steps["num_seqs"] * steps["duration_s"]).sum() / busy_s,
        "batch_size_max": steps["num_seqs"].max(),
        "tokens_per_step": tokens / len(steps),
        "kv_use_mean": (steps["kv_blocks_used"] * steps["duration_s"]).sum()
        / busy_s
        / (blocks - 1),
        "kv_use_max": steps["kv_blocks_used"].max() / usable,
        "prefix_hit_rate": cached / asked,
        "prefix_hit_tokens": cached,
        "preemptions": steps["num_preempted"].sum(),
        "preempted_requests": (requests["preemptions"] > 0).sum(),
        "recomputed_tokens": recomputed,
        "recomputed_share": recomputed / tokens,
        "num_gpu_blocks": blocks,
        "steps_outside_fit": 0,
    }


def load(requests: pd.DataFrame) -> dict[str, object]:
    """Arrivals and starts in the second half of the arrivals."""
    taken = requests[requests["queued_s"].notna()]
    begin, end = taken["arrival_s"].iloc[len(taken) // 2], taken["arrival_s"].iloc[-1]
    came = ((taken["arrival_s"] > begin) & (taken["arrival_s"] <= end)).sum()
    started = ((taken["scheduled_s"] > begin) & (taken["scheduled_s"] <= end)).sum()
    return {
        "offered_rps": came / (end - begin),
        "rho": came / started if started else None,
        "backlog_growth_rps": (came - started) / (end - begin),
        "overloaded": came - started >= 10 and (not started or came / started >= 0.95),
    }


@every_run
def test_the_summary_follows_from_requests_and_steps(
    overrides: tuple[str, ...], stepwise: bool
) -> None:
    result = run(*overrides, stepwise=stepwise)
    requests, steps, summary = result.requests, result.steps, dict(result.summary)
    duration_s = 8.0 if overrides is CUT else requests["last_token_s"].max()
    duration_s -= requests["arrival_s"].min()
    busy_s = steps["duration_s"].sum()
    expected = {
        **latencies(requests),
        **outcomes(requests, duration_s),
        **engine(requests, steps, 3000 if overrides is AMPLE else BLOCKS),
        **load(requests),
        "busy_fraction": busy_s / duration_s,
        "outside_fit": None,
        "cost_mismatch": None,
        "rejected_reason": "prompt + max_tokens > max_model_len 700",
    }
    # gaps between tokens are in neither table; their percentiles are below
    elsewhere = {*LABELS, *HOW, *(f"itl_p{q}_s" for q in PERCENTILES)}
    assert set(summary) == set(expected) | elsewhere
    for column, value in expected.items():
        if isinstance(value, str | bool | None):
            assert summary[column] == value, column
        else:
            assert summary[column] == pytest.approx(value, rel=1e-9), column


@pytest.mark.parametrize("stepwise", [True, False])
def test_gaps_between_tokens_follow_from_steps_where_nobody_is_preempted(stepwise: bool) -> None:
    result, margin = run(*AMPLE, stepwise=stepwise), 1e-7  # seconds; far less than any step
    ends = (result.steps["start_s"] + result.steps["duration_s"]).to_numpy()
    gaps = []
    columns = ["first_token_s", "last_token_s", "output_tokens"]
    for first, last, tokens in result.requests[columns].dropna().to_numpy():
        stamps = ends[(ends > first - margin) & (ends < last + margin)]
        assert len(stamps) == tokens  # a token at every step
        gaps.append(np.diff(stamps))
    for q in PERCENTILES:
        expected = np.percentile(np.concatenate(gaps), q)
        assert result.summary[f"itl_p{q}_s"] == pytest.approx(expected, rel=1e-6)


def test_the_runs_are_as_hard_as_they_are_meant_to_be() -> None:
    requests = run(*PRESSURE, stepwise=False).requests
    assert (requests["preemptions"] > 1).sum() >= 5
    assert requests["cached_tokens"].sum() > 500
    assert set(requests["status"]) == {"finished", "rejected"}
    cut = run(*CUT, stepwise=False).requests
    assert set(cut["status"]) == {"finished", "rejected", "unfinished"}
    assert (cut["first_token_s"].notna() & (cut["status"] == "unfinished")).any()
    assert run(*AMPLE, stepwise=False).requests["preemptions"].sum() == 0
    assert run(*PRESSURE, stepwise=False).summary["steps_skipped"] > 1000


@every_run
def test_nothing_is_lost_or_made_up(overrides: tuple[str, ...], stepwise: bool) -> None:
    result = run(*overrides, stepwise=stepwise)
    requests, steps, summary = result.requests, result.steps, result.summary
    assert list(requests["rid"]) == list(range(50))
    assert sum(summary[s] for s in ("finished", "rejected", "unfinished", "failed")) == 50
    ended = requests[requests["status"] == "finished"]
    assert (ended["output_tokens"] == ended["requested_tokens"]).all()
    assert (ended["ttft_s"] <= ended["e2e_s"]).all()
    assert (requests["output_tokens"] <= requests["requested_tokens"]).all()
    assert requests["preemptions"].sum() == steps["num_preempted"].sum()

    reached = requests[requests["first_token_s"].notna()]
    stamps = ("arrival_s", "queued_s", "scheduled_s", "first_token_s", "last_token_s")
    for earlier, later in pairwise(stamps):
        assert (reached[earlier] <= reached[later]).all(), (earlier, later)
    alone = reached["first_token_s"] == reached["last_token_s"]
    assert ((reached["output_tokens"] == 1) == alone).all()
    # a first admission happens where a step begins
    assert set(requests["scheduled_s"].dropna()) <= set(steps["start_s"])

    ends = steps["start_s"] + steps["duration_s"]
    assert (ends.to_numpy()[:-1] <= steps["start_s"].to_numpy()[1:] + 1e-9).all()
    assert 0 < summary["busy_fraction"] <= 1
    assert (steps["kv_blocks_used"] < summary["num_gpu_blocks"]).all()
    assert (steps["num_prefill_seqs"] + steps["decode_tokens"] == steps["num_seqs"]).all()


@every_run
def test_tokens_of_steps_are_tokens_of_requests(overrides: tuple[str, ...], stepwise: bool) -> None:
    """Each token is computed once, but for the cached ones, the last one, and what was lost."""
    result = run(*overrides, stepwise=stepwise)
    requests, steps = result.requests, result.steps
    reached = requests[requests["first_token_s"].notna()]
    once = reached["prompt_tokens"] - reached["cached_tokens"] + reached["output_tokens"] - 1
    begun = requests[requests["first_token_s"].isna() & requests["scheduled_s"].notna()]
    in_prefill = int((begun["prompt_tokens"] - begun["cached_tokens"]).sum())
    computed = int((steps["prefill_tokens"] + steps["decode_tokens"]).sum())
    least = int((once + reached["recomputed_tokens"]).sum())
    assert least <= computed <= least + in_prefill
    if overrides is not CUT:
        assert in_prefill == 0
    if overrides is AMPLE:
        prompts = reached["prompt_tokens"] - reached["cached_tokens"]
        assert steps["prefill_tokens"].sum() == prompts.sum()
        assert steps["decode_tokens"].sum() == (reached["output_tokens"] - 1).sum()


def test_both_ways_of_running_say_the_same() -> None:
    for overrides in RUNS.values():
        stepped, skipped = (run(*overrides, stepwise=stepwise) for stepwise in (True, False))
        pd.testing.assert_frame_equal(stepped.requests, skipped.requests, check_exact=True)
        pd.testing.assert_frame_equal(stepped.steps, skipped.steps, check_exact=True)
        assert stepped.summary["steps_skipped"] == 0 < skipped.summary["steps_skipped"]
        rows = [{k: v for k, v in r.summary.items() if k not in HOW} for r in (stepped, skipped)]
        assert rows[0] == rows[1]
