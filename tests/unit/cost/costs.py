"""Toy costs, for tests: a model, a card, and coefficients that are zero unless said otherwise."""

import copy
from typing import Any

from servesim.cost.fitted import Fitted
from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from servesim.model.spec import ModelSpec
from servesim.records import StepPlan, StepTime, Work

US = 10**6  # picoseconds
MODEL = ModelSpec("toy", 2, 64, 4, 2, 16, 128, 1000, False, 4096)
CARD = GPU("card", 1.0, 1.0, {"bf16": 1.0}, 1.0)
ON_CARD = Deployment(MODEL, CARD)

NOTHING: dict[str, Any] = {
    "dense": {"knots_tokens": [1, 2], "us": [0, 0], "tile_tokens": 64, "tile_share": 0},
    "once": {"us": 0, "us_per_token": 0},
    "head": {"knots_rows": [1, 2], "us": [0, 0]},
    "decode_attention": {
        "us": 0,
        "us_per_seq": 0,
        "us_per_kv_token": 0,
        "us_per_first_kv_token": 0,
        "first_kv_tokens": 0,
        "whole_from_seqs": 1000,
        "us_if_whole": 0,
        "us_per_uneven_token": 0,
    },
    "mixed_attention": {
        "tile_queries": 64,
        "task_us": 0,
        "task_us_per_kv_token": 0,
        "us_per_launched_tile": 0,
        "us_per_tile": 0,
        "us_per_tile_kv_token": 0,
        "us_per_seq": 0,
        "us_per_kv_token": 0,
        "ragged_share": 0,
        "us_per_spilled_kv_token": 0,
        "spill_kv_tokens": 0,
        "spill_seqs": 0,
    },
    "link": {"us": 0, "us_per_token": 0},
    "host": {"us": 0, "us_per_seq": 0},
}
RANGE = {
    "tokens": [1, 512],
    "sampled_rows": [1, 64],
    "decode_seqs": [1, 64],
    "longest_decode_context": [16, 1024],
    "longest_prefill_context": [16, 1536],
    "prefill_past": [0, 1024],
    "kv_tokens": [16, 9000],
}


def cost(parts: dict[str, dict[str, Any]] | None = None, **fields: Any) -> Fitted:
    tree = copy.deepcopy(NOTHING)
    for part, values in (parts or {}).items():
        tree[part].update(values)
    on = {"model": "toy", "gpu": "card", "tp": 1, "dtype": "bf16", "kv_dtype": "bf16"}
    source = {"repository": "r", "commit": "0123456789", "licence": "MIT", "files": "f"}
    defaults: dict[str, Any] = {
        "fitted_on": {**on, "engine": "vllm"},
        "source": {**source, "engine_version": "0.19.0", "fitted_at": "2026-01-01"},
        "fit_range": RANGE,
        "held_out_error": {"step": {"median": 0.02, "p90": 0.06, "worst": 0.3}},
        "coefficients": tree,
    }
    return Fitted(**(defaults | fields))


def step(model: Fitted, *work: Work) -> StepTime:
    return model.bind(ON_CARD).step_time(StepPlan(work))


def decode(rid: int, context: int, *, drafts: int = 0) -> Work:
    return Work(rid, 1 + drafts, context - 1 - drafts, drafts, True)


def chunk(rid: int, tokens: int, past: int = 0, *, samples: bool = False) -> Work:
    return Work(rid, tokens, past, 0, samples)


LIKE_MEASURED = cost(
    {
        "dense": {"knots_tokens": [1, 64, 512], "us": [300, 340, 700], "tile_share": 0.7},
        "once": {"us": 5, "us_per_token": 0.01},
        "head": {"knots_rows": [1, 64], "us": [700, 760]},
        "decode_attention": {
            "us": 12,
            "us_per_seq": 0.03,
            "us_per_kv_token": 0.0027,
            "us_per_first_kv_token": 0.0003,
            "first_kv_tokens": 3000,
            "whole_from_seqs": 5,
            "us_if_whole": 9,
            "us_per_uneven_token": 0.01,
        },
        "mixed_attention": {
            "task_us": 4,
            "task_us_per_kv_token": 0.022,
            "us_per_launched_tile": 0.05,
            "us_per_tile": 1,
            "us_per_tile_kv_token": 0.0035,
            "us_per_seq": 0.8,
            "us_per_kv_token": 0.0038,
            "ragged_share": 0.45,
            "us_per_spilled_kv_token": 0.01,
            "spill_kv_tokens": 4000,
            "spill_seqs": 4,
        },
    }
)
