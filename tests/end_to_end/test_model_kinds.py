"""Models of every kind run under the roofline, and skipping changes none of their numbers."""

import pandas as pd
import pytest

import servesim

LOAD = (
    "cost=roofline",
    "hardware=h200_sxm",
    "workload.num_requests=30",
    "workload.rate_rps=8",  # prompts of azure_conv_like are on both sides of a window of 1,024
)


@pytest.mark.parametrize(
    ("model", "tp"),
    [
        ("mixtral_8x7b", 2),
        ("deepseek_v3.2", 8),
        ("gpt_oss_120b", 1),
        ("gemma3_27b", 1),
        ("qwen3_next_80b_a3b", 2),
        ("nemotron3_nano_30b_a3b", 1),
    ],
)
def test_skipping_changes_no_number(model: str, tp: int) -> None:
    stepped, skipped = (
        servesim.simulate(*LOAD, f"model={model}", f"tp={tp}", f"stepwise={way}", keep_steps=True)
        for way in ("true", "false")
    )
    assert skipped.summary["steps_skipped"] > 400 > stepped.summary["steps_skipped"] == 0
    pd.testing.assert_frame_equal(stepped.steps, skipped.steps, check_exact=True)
    pd.testing.assert_frame_equal(stepped.requests, skipped.requests, check_exact=True)
    assert skipped.summary["finished"] == 30
