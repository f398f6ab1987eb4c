"""Random cases for the differential test of the SGLang profile."""

import random

from servesim.scheduler.sglang.queue import POLICIES
from validation.conformance.sglang_trace import EOS_TOKEN, Case, Config, ScriptedRequest

_EVICTION = ("lru", "lru", "lru", "lfu", "fifo", "filo", "slru")
_FIRST_TOKEN = 1000  # of the tokens that are sampled; a prompt draws from below


def random_case(seed: int) -> Case:
    """A small engine under pressure; each prompt shares a prefix with one before it, or a reply."""
    draw = random.Random(seed)
    crowd = seed % 25 == 24  # more waiting than the cache-aware policies look at
    pressed = not crowd and seed % 4 == 0  # replies outgrow the memory, so there are retractions
    config = _config(draw, crowd, pressed)
    requests: list[ScriptedRequest] = []
    count, step = (160 if crowd else draw.randint(12 if pressed else 2, 24)), 0
    longest = 12 if crowd or pressed else draw.choice([12, 40, 80])
    talk = 60 if pressed else draw.choice([4, 30, 50])  # longest reply
    for number in range(count):
        step += 0 if crowd or pressed else draw.choice([0, 0, 0, 1, 2, 5, 40])
        prompt = _prompt(draw, requests, longest)
        reply = tuple(_FIRST_TOKEN * (number + 1) + i for i in range(draw.randint(0, talk)))
        requests.append(
            ScriptedRequest(
                arrive=step,
                id=f"r{number:03d}",
                prompt=prompt,
                reply=(*reply, EOS_TOKEN),
                max_tokens=draw.randint(30 if pressed else 1, 60),
                priority=draw.randint(0, 2),
            )
        )
    return Case(f"random {seed}", config, tuple(requests))


def _config(draw: random.Random, crowd: bool, pressed: bool) -> Config:
    page_size = draw.choice([1, 1, 1, 2, 4])
    policy = draw.choice(["lpm", "hrrn"] if crowd else list(POLICIES))
    mixed = draw.random() < 0.25
    chunk = draw.choice([16, 32, 64, 128]) if mixed else draw.choice([8, 16, 32, 128, -1])
    tokens = draw.choice([152, 176, 208, 300, 600])
    return Config(
        tokens=tokens,
        max_model_len=150,
        # a mixed batch must leave room for a chunk beside its decodes
        max_running_requests=draw.choice(
            [4, 8] if mixed else [20] if pressed else [3, 6, tokens // 2]
        ),
        chunked_prefill_size=chunk,
        max_prefill_tokens=draw.choice([24, 60, 16384, 16384]),
        schedule_policy=policy,
        schedule_conservativeness=draw.choice([0.0, 0.2] if pressed else [0.0, 0.2, 1.0, 2.0]),
        enable_mixed_chunk=mixed,
        disable_overlap_schedule=draw.random() < 0.5,
        enable_priority_scheduling=policy in ("fcfs", "lof") and draw.random() < 0.3,
        page_size=page_size,
        disable_radix_cache=draw.random() < 0.12,
        radix_eviction_policy=draw.choice(_EVICTION),
        clip_max_new_tokens=4 if pressed else draw.choice([4, 4096]),
    )


def _prompt(draw: random.Random, earlier: list[ScriptedRequest], longest: int) -> tuple[int, ...]:
    fresh = tuple(draw.randint(10, 99) for _ in range(draw.randint(1, longest)))
    if not earlier or draw.random() < 0.3:
        return fresh
    model = draw.choice(earlier[-6:])
    known = model.prompt + model.reply[: model.max_tokens]
    kept = known[: draw.randint(1, len(known))]
    return (*kept, *fresh[: draw.randint(0, len(fresh))])[: longest + 8]
