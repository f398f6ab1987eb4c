"""Random small loads for the scheduler of transformers continuous batching, by seed.

They are made to be hard: few pages for what is asked, prefixes that branch and run on into
replies, bursts, batches of one token, margins from none to all.
"""

from random import Random

from validation.conformance.hf_trace import Config, Scripted


def random_workload(seed: int) -> tuple[Config, tuple[Scripted, ...]]:
    """Settings and requests, in order of arrival; each could run alone."""
    rng = Random(seed)
    config = _config(rng)
    slots = config.page_size * config.num_pages
    burst = rng.choice((0.2, 0.6, 0.9, 1.0))
    longest = min(slots, rng.choice((slots // 6, slots // 3, slots // 2, slots)) + 2)
    make = rng.choice((_mixed, _mixed, _one_stem, _echoes))
    requests, arrive = [], 0
    for _ in range(rng.randint(4, 30)):
        if rng.random() > burst:
            arrive += rng.choice((1, 1, 2, 3, 8, 25))
        requests.append(make(rng, config, arrive, longest))
    return config, tuple(requests)


def _config(rng: Random) -> Config:
    tokens = rng.choice((1, 3, 8, 16, 16, 32, 64, 200))
    return Config(
        scheduler_type=rng.choice(("fifo", "prefill_first")),
        page_size=rng.choice((4, 4, 5, 8, 16)),
        num_pages=rng.randint(3, 28),
        max_batch_tokens=tokens,
        max_requests_per_batch=min(tokens, rng.choice((1, 2, 4, 8, 64, 64))),
        max_blocks_per_request=rng.choice((0, 0, 1, 2, 4, 32)),
        safety_margin=rng.choice((None, None, None, 0.0, 0.1, 0.3, 0.6, 1.0)),
        allow_block_sharing=rng.random() < 0.8,
    )


def _mixed(rng: Random, config: Config, arrive: int, longest: int) -> Scripted:
    """Any prompt and reply of at most `longest` tokens of KV, some with a known beginning."""
    total = rng.randint(1, longest)
    prompt = rng.randint(1, total)
    return _scripted(rng, arrive, prompt, total, _shared(rng, config.page_size, total))


def _one_stem(rng: Random, config: Config, arrive: int, longest: int) -> Scripted:
    """A long beginning that all have in common: together they read more than the cache holds."""
    stem = config.num_pages // 2 * config.page_size
    prompt = min(stem + rng.randint(1, 4), longest)
    total = min(prompt + rng.randint(0, 2 * config.page_size), longest)
    return _scripted(rng, arrive, prompt, total, ((0, stem),))


def _echoes(rng: Random, config: Config, arrive: int, longest: int) -> Scripted:
    """Replies that are the beginnings of others' prompts."""
    total = rng.randint(1, longest)
    prompt = rng.randint(1, min(total, 2 * config.page_size))
    return _scripted(rng, arrive, prompt, total, ((rng.randint(0, 1), total + 1),))


def _scripted(
    rng: Random, arrive: int, prompt: int, total: int, shared: tuple[tuple[int, int], ...]
) -> Scripted:
    """A request of `total` tokens of KV, or fewer where its reply ends early."""
    max_tokens = total - prompt + 1
    if rng.random() < 0.2:
        max_tokens = min(max_tokens, rng.randint(1, 4))
    output = max_tokens if rng.random() < 0.6 else rng.randint(1, max_tokens)
    return Scripted(arrive, prompt, output, max_tokens, shared)


def _shared(rng: Random, page: int, total: int) -> tuple[tuple[int, int], ...]:
    """Nothing, a stem, or a stem and a branch of it."""
    if rng.random() < 0.3:
        return ()
    stem = rng.choice((page, 2 * page, 3 * page, rng.randint(1, total)))
    stream = rng.randint(0, 1)
    if rng.random() < 0.5:
        return ((stream, stem),)
    branch = rng.choice((page, 2 * page, rng.randint(1, total)))
    return ((stream, stem), (10 + rng.randint(0, 2), branch))
