"""What requests of given lengths take of a cache, and how fast they can be at best."""

from collections.abc import Sequence
from typing import NamedTuple

from servesim.app.size_setup import Sizing
from servesim.cost.bounds import Bounds, PassWork, TokenPasses, token_passes
from servesim.kv.groups import request_bytes
from servesim.model.parts import KVLayers

_POINTS = 1024  # of a reply at which its steps are timed; the time is linear almost everywhere
_INDEX_KINDS = ("indexer", "compressed")  # do not count as keys that every head attends to


class Requests(NamedTuple):
    """One request of the asked lengths, and as many as fit.

    Attributes:
        blocks: that one takes at most.
        kv_bytes: of one with its whole reply, on one rank.
        fit: as many as the blocks hold.
        at_a_time: of these, as many as the engine runs.
        kv_read_s: to read one's cache once, halfway through the reply, at peak bandwidth.
        prefill_s: least time of its prompt.
        step_s: least time of a decode step of it alone, halfway through the reply.
        full_step_s: the same of `at_a_time` of them.
        decode_s: least time of its reply after the first token, alone.
        passes: tokens through the model, without a cache and with one.
    """

    blocks: int
    kv_bytes: int
    fit: int
    at_a_time: int
    kv_read_s: float
    prefill_s: float
    step_s: float
    full_step_s: float
    decode_s: float
    passes: TokenPasses


def requests_of(sizing: Sizing) -> Requests:
    """The answer for `size.prompt_tokens` and `size.output_tokens`."""
    prompt, output = sizing.asked.prompt_tokens, sizing.asked.output_tokens
    bounds, caches = Bounds(sizing.deployment), sizing.caches
    layout = sizing.budget.layout
    blocks = layout.blocks_per_request(prompt + output)
    fit = sizing.blocks_for_requests // blocks
    at_a_time = min(fit, sizing.engine.max_num_seqs)
    halfway = prompt + -(-output // 2)
    read = request_bytes(caches, halfway)
    prefill = PassWork(prompt, 1, _attended(caches, prompt), request_bytes(caches, prompt))
    return Requests(
        blocks=blocks,
        kv_bytes=request_bytes(caches, prompt + output),
        fit=fit,
        at_a_time=at_a_time,
        kv_read_s=read / bounds.bandwidth,
        prefill_s=bounds.seconds(prefill),
        step_s=bounds.seconds(_step(caches, halfway, 1)),
        full_step_s=bounds.seconds(_step(caches, halfway, max(at_a_time, 1))),
        decode_s=_decode_s(bounds, caches, prompt, output),
        passes=token_passes(prompt, output),
    )


def _decode_s(bounds: Bounds, caches: Sequence[KVLayers], prompt: int, output: int) -> float:
    """All steps after the prefill, which gives the first token: at evenly spaced contexts."""
    steps = output - 1
    points = min(steps, _POINTS)
    contexts = (prompt + 1 + int((i + 0.5) * steps / points) for i in range(points))
    times = [bounds.seconds(_step(caches, context, 1)) for context in contexts]
    return sum(times) * steps / points if points else 0.0


def _step(caches: Sequence[KVLayers], context: int, requests: int) -> PassWork:
    """A decode step of `requests` requests with so much context each."""
    keys = sum(c.num_layers * min(context, c.window_tokens or context) for c in _attention(caches))
    return PassWork(requests, requests, requests * keys, requests * request_bytes(caches, context))


def _attended(caches: Sequence[KVLayers], tokens: int) -> int:
    """Keys that a prompt's tokens attend to, over all layers: token i to i, or to its window."""
    total = 0
    for cache in _attention(caches):
        grown = min(tokens, cache.window_tokens or tokens)
        keys = grown * (grown + 1) // 2 + (tokens - grown) * grown
        total += cache.num_layers * keys
    return total


def _attention(caches: Sequence[KVLayers]) -> list[KVLayers]:
    return [c for c in caches if c.bytes_per_token and c.kind not in _INDEX_KINDS]
