"""Runs of a few requests at known times: what counts as prefill, and where a run is cut."""

from pathlib import Path

import pandas as pd
import pytest

import servesim
from servesim import Result

TRACE = (
    "cost=roofline",
    "workload=trace",
    "workload.columns.arrival=t",
    "workload.columns.prompt_tokens=prompt",
    "workload.columns.output_tokens=output",
    "workload.unit=s",
    "workload.origin=zero",
)


def traced(
    path: Path, rows: list[tuple[float, int, int]], *overrides: str, stepwise: bool
) -> Result:
    pd.DataFrame(rows, columns=["t", "prompt", "output"]).to_csv(path, index=False)
    mode = f"stepwise={str(stepwise).lower()}"
    return servesim.simulate(*TRACE, f"workload.path={path}", mode, *overrides, keep_steps=True)


@pytest.mark.parametrize("stepwise", [True, False])
def test_two_prompt_tokens_are_a_prefill_and_one_is_not(tmp_path: Path, stepwise: bool) -> None:
    rows = [(float(i), prompt, 3) for i, prompt in enumerate((2, 3, 1))]
    steps = traced(tmp_path / "t.csv", rows, stepwise=stepwise).steps
    assert list(steps["prefill_tokens"]) == [2, 0, 0, 3, 0, 0, 0, 0, 0]
    assert list(steps["num_prefill_seqs"]) == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert list(steps["decode_tokens"]) == [0, 1, 1, 0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("stepwise", [True, False])
def test_arrivals_at_the_cut_and_after_it_are_not_lost(tmp_path: Path, stepwise: bool) -> None:
    rows = [
        (0.0, 300, 400),
        (0.5, 20, 5),
        (1.0, 30, 900),
        (2.0, 40, 10),
        (2.0, 50, 10),
        (3.0, 1, 1),
    ]
    result = traced(tmp_path / "t.csv", rows, "until_s=2", stepwise=stepwise)
    requests, summary = result.requests, result.summary
    assert list(requests["prompt_tokens"]) == [300, 20, 30, 40, 50, 1]
    assert list(requests["status"]) == ["unfinished", "finished", *["unfinished"] * 4]
    assert list(requests["reason"][3:]) == ["not arrived"] * 3
    assert summary["duration_s"] == 2
    assert summary["prompt_tokens"] == 350  # what has a first token, finished or not
    assert 0.9 < summary["busy_fraction"] <= 1
    # the first request got a token at the end of every step that ended before the cut
    ends = result.steps["start_s"] + result.steps["duration_s"]
    assert requests["output_tokens"][0] == (ends < 2).sum() == len(result.steps)


@pytest.mark.parametrize("stepwise", [True, False])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_a_cut_where_a_step_ends(tmp_path: Path, stepwise: bool, step: int) -> None:
    """Nothing happens any more at the instant of the cut, so that step does not count."""
    rows = [(0.0, 300, 400), (15.0, 20, 5)]
    # until_s is rounded to nanoseconds, so steps must end there: 32 layers × 3.125 ns per token
    attention = "cost.coefficients.decode_attention"
    cost = (
        "cost=llama3.1_8b_rtx_pro_6000",
        f"{attention}.us_per_kv_token=0.003125",
        f"{attention}.us_per_first_kv_token=0",
    )
    record = traced(tmp_path / "t.csv", rows, *cost, stepwise=stepwise).record
    end_ps = record.steps[step].start_ps + record.steps[step].duration_ps
    until = f"until_s={end_ps / 1e12!r}"
    cut = traced(tmp_path / "t.csv", rows, *cost, until, stepwise=stepwise)
    assert cut.record.end_ps == end_ps
    assert cut.record.steps == record.steps[:step]
    assert list(cut.requests["output_tokens"]) == [step, 0]
    assert 0 <= cut.summary["busy_fraction"] <= 1
