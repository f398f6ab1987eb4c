"""Random scenarios for a scheduler: settings, requests and what their steps sample.

A scenario is a trace without rows. It follows from its seed and the release alone, so a run can be
repeated, and it needs no engine. Small pools, few slots and common prefixes make what is rare in a
real deployment (preemption, eviction, a block at the head of the queue) happen every few steps.
"""

import random
from typing import Any

from validation.conformance.trace import EOS_TOKEN, ScriptedRequest, Trace

RELEASES = ("0.11", "0.15", "0.20", "0.32", "0.33")
_WATERMARK_SINCE = (
    "0.32"  # the option is in v1/core/sched/scheduler.py of these wheels, not in 0.20
)
_LAST_ARRIVAL = 60
_FIRST_TOKEN, _PAST_TOKEN = 10, 50  # below the unscripted tokens, above EOS


def scenario(release: str, seed: int) -> Trace:
    """The scenario of a seed, for one of RELEASES; `rows` is empty."""
    rng = random.Random(seed)
    config = _config(rng, release)
    requests = _requests(rng, config, release)
    outputs = {r.id: _sampled(rng, r.max_tokens) for r in requests if rng.random() < 0.7}
    requests = _with_follow_ups(rng, config, requests, outputs)
    accepted = {r.id: _accepted(rng, r, config["K"]) for r in requests if config["K"]}
    return Trace(
        name=f"seed {seed}",
        release=release,
        config=config,
        requests=tuple(requests),
        rows=(),
        final_free_queue=None,
        outputs=outputs,
        accepted=accepted,
    )


def _config(rng: random.Random, release: str) -> dict[str, Any]:
    block_size = rng.choice([4, 8, 16])
    max_len = rng.choice([64, 96, 200])
    chunked = rng.random() < 0.85
    budget = rng.choice([16, 32, 64, 128])
    if not chunked:  # the engine refuses a budget that one prompt may exceed
        budget = max(budget, max_len)
    asynchronous = rng.random() < 0.5
    drafts = rng.choice([0, 0, 2, 4])
    if release == "0.11" and asynchronous:
        drafts = 0  # engine/arg_utils.py refuses the two together
    lookahead = drafts if rng.random() < 0.6 else 0
    fitting = -(-(max_len + lookahead + 1) // block_size)  # blocks of the longest request
    watermark = rng.choice([0.0, 0.0, 0.05, 0.1])
    return {
        "nblocks": 1 + fitting + rng.choice([0, 1, 3, 8, 20]),
        "bs": block_size,
        "max_tok": budget,
        "max_seqs": min(rng.choice([2, 4, 8, 16]), budget),
        "max_len": max_len,
        "policy": rng.choice(["fcfs", "priority"]),
        "caching": rng.random() < 0.75,
        "thr": rng.choice([0, 0, 8, 24]),
        "chunked": chunked,
        "K": drafts,
        "la": lookahead,
        "full": rng.random() < 0.7,
        "wm": watermark if release >= _WATERMARK_SINCE else 0.0,
        "asyn": asynchronous,
        "eagle_drop": lookahead > 0 and rng.random() < 0.5,
    }


def _requests(rng: random.Random, config: dict[str, Any], release: str) -> list[ScriptedRequest]:
    """Requests by arrival: prompts of three families, some in bursts, some given up."""
    max_len = config["max_len"]
    stems = [_tokens(rng, max_len) for _ in range(3)]
    count = rng.choice([3, 8, 12, 20])
    arrivals = sorted(rng.randrange(_LAST_ARRIVAL) for _ in range(count))
    if rng.random() < 0.3:  # all at once, or in two waves
        waves = rng.choice([[0], [0, 25]])
        arrivals = sorted(rng.choice(waves) for _ in range(count))
    if release == "0.11" and config["policy"] == "priority":
        arrivals = [2 * i for i in range(count)]  # its heap cannot hold two of equal key
    longest = rng.choice([max_len // 4, max_len // 2, max_len - 2])
    gives_up = rng.random() < 0.4
    requests = []
    for i, arrive in enumerate(arrivals):
        length = rng.randrange(1, longest)
        stem = rng.choice(stems)
        shared = length if rng.random() < 0.15 else rng.randrange(length + 1)
        prompt = stem[:shared] + _tokens(rng, length - shared)
        abort = arrive + rng.randrange(12) if gives_up and rng.random() < 0.3 else None
        request = ScriptedRequest(
            arrive,
            f"r{i:03d}",
            tuple(prompt),
            rng.randrange(1, 40),
            rng.choice([0, 0, 1, 2]),
            abort,
        )
        requests.append(request)
    return requests


def _with_follow_ups(
    rng: random.Random,
    config: dict[str, Any],
    requests: list[ScriptedRequest],
    outputs: dict[str, list[int]],
) -> list[ScriptedRequest]:
    """In some scenarios the prompt of a late request is an earlier one with its reply."""
    if rng.random() < 0.6:
        return requests
    changed = list(requests)
    for i in range(1, len(requests)):
        before = changed[rng.randrange(i)]
        if before.id in outputs and rng.random() < 0.5:
            turn = [*before.prompt, *outputs[before.id], *_tokens(rng, rng.randrange(1, 6))]
            later = requests[i]
            changed[i] = ScriptedRequest(
                later.arrive,
                later.id,
                tuple(turn[: config["max_len"] - 2]),
                later.max_tokens,
                later.priority,
                later.abort_step,
            )
    return changed


def _sampled(rng: random.Random, count: int) -> list[int]:
    """What the model samples; the stop ends the list, as nothing after it is kept."""
    tokens = []
    for _ in range(count):
        tokens.append(EOS_TOKEN if rng.random() < 0.04 else _tokens(rng, 1)[0])
        if tokens[-1] == EOS_TOKEN:
            break
    return tokens


def _accepted(rng: random.Random, request: ScriptedRequest, drafts: int) -> list[int]:
    """Accepted drafts of each verification, each draft with probability 0.6 after the last."""
    counts = []
    for _ in range(request.max_tokens):
        count = 0
        while count < drafts and rng.random() < 0.6:
            count += 1
        counts.append(count)
    return counts


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(_FIRST_TOKEN, _PAST_TOKEN) for _ in range(count)]
