"""Attention of LLMServingSim's older profiles, in the terms of the kernels that vLLM runs today.

The profiles' decode kernel reads the KV of a KV head once per query head and does not split long
contexts over the GPU (see validation/sources/llmservingsim_v0.py). vLLM's FlashAttention does both
(0.6 and later), so of a measured batch of decodes only what carries over is taken: the time of a
launch, the share of the memory's bandwidth that large batches reach, and the context that a
sequence takes at least. That KV is then read once is not measured by this source.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from servesim.deployment import Deployment
from validation.fit.rows import Mask
from validation.sources.llmservingsim_v0 import Attention, Profile
from validation.sources.tables import Array

KV_AND_BYTES = 2 * 2  # keys and values of 16 bits
SOFT = 0.05
# thread blocks per multiprocessor from which a batch keeps the whole GPU reading
FULL_BLOCKS_PER_SM = 2
CHUNKS = (32, 64, 128, 256, 512, 1024, 2048)
SMALL_CHUNK = 128  # up to a tile of queries, a chunk costs the walk along its past


@dataclass(frozen=True)
class Decodes:
    """What carries over from one profile to another.

    Attributes:
        launch_us: of a call that reads next to nothing.
        bandwidth_share: of the GPU's memory bandwidth, in a large batch.
        least_context: tokens that a shorter context costs like.
        walk_us_per_token: of a small chunk, per token of its past.
    """

    launch_us: float
    bandwidth_share: float
    least_context: float
    walk_us_per_token: float


def full_gpu(rows: Attention, target: Deployment, multiprocessors: int) -> Mask:
    """Decode rows with enough query heads to keep every multiprocessor busy."""
    blocks = rows.seqs * (_query_heads(target))
    return np.asarray(blocks >= FULL_BLOCKS_PER_SM * multiprocessors)


def fit_decodes(rows: Attention, target: Deployment, used: Mask) -> Decodes:
    """From the decode rows of `used` and all chunks of up to a tile."""
    seqs, kv, us = rows.seqs[used], rows.kv_tokens[used], rows.decode_us[used]
    rate = _unshared_bytes(target) / _bytes_per_us(target)
    start = np.array([float(rows.decode_us.min()), 1.1 * rate, 32.0])

    def residual(x: Array) -> Array:
        predicted = x[0] + x[1] * np.maximum(kv, x[2] * seqs)
        return np.asarray(np.log(predicted / us))

    solved = least_squares(
        residual, start, bounds=(1e-9, np.inf), loss="soft_l1", f_scale=SOFT, x_scale=start
    )
    launch, per_token, least = (float(value) for value in solved.x)
    walk = rows.chunk <= SMALL_CHUNK
    walk_us = float(np.median((rows.chunk_us[walk] - launch) / rows.past[walk]))
    return Decodes(launch, min(1.0, rate / per_token), least, max(0.0, walk_us))


def as_measured_us(c: Decodes, target: Deployment, seqs: Array, kv_tokens: Array) -> Array:
    """A batch of decodes by the profile's own kernel, one layer."""
    per_token = _unshared_bytes(target) / (_bytes_per_us(target) * c.bandwidth_share)
    return np.asarray(c.launch_us + per_token * np.maximum(kv_tokens, c.least_context * seqs))


def decode_table(c: Decodes, target: Deployment, most_seqs: int, longest: int) -> dict[str, Any]:
    """`tables.decode_attention` of a kernel cost: KV read once, whole model, one rank."""
    heads = target.model.kv_heads_per_rank(target.tp)
    per_token = heads * target.model.head_dim * KV_AND_BYTES
    us = per_token / (_bytes_per_us(target) * c.bandwidth_share)
    layers, contexts = target.model.num_layers, [max(1.0, c.least_context), float(longest)]
    return {
        "seqs": [1, most_seqs],
        "context": contexts,
        "us": [[layers * (c.launch_us + us * n * x) for x in contexts] for n in (1, most_seqs)],
    }


@dataclass(frozen=True)
class Chunks:
    """Attention of one layer for a prompt chunk.

    Attributes:
        own_us: to itself, at each of CHUNKS.
        past_us: per token of its past, at each of CHUNKS.
    """

    own_us: Array
    past_us: Array

    def at(self, chunk: Array, past: Array) -> Array:
        """As a kernel cost reads its table: time per token between knots."""
        knots = np.array(CHUNKS, dtype=float)
        own, slope = (np.interp(chunk, knots, us / knots) for us in (self.own_us, self.past_us))
        return np.asarray(chunk * (own + slope * past))

    def table(self, layers: int) -> dict[str, Any]:
        """`tables.prefill_attention` of a kernel cost."""
        past = np.array([0.0, CHUNKS[-1]])
        us = layers * (self.own_us[:, None] + self.past_us[:, None] * past)
        return {"chunk": list(CHUNKS), "past": past, "us": us}


def fit_chunks(profile: Profile, decodes: Decodes, used: Mask) -> Chunks:
    """From the chunk rows of `used`, or, without an attention table, from whole prompts."""
    chunks, rows = np.array(CHUNKS, dtype=float), profile.attention
    if rows is not None:
        past_us = _measured_past_us(rows, decodes.launch_us, chunks, used)
    else:
        past_us = np.maximum(decodes.walk_us_per_token, _per_pair_us(profile) * chunks)
    if "attn" in profile.layers_us:
        own = np.interp(chunks, profile.tokens, profile.layers_us["attn"])
    else:  # half the rectangle of as much past
        own = decodes.launch_us + past_us * chunks / 2
    return Chunks(np.maximum.accumulate(own), past_us)


def _measured_past_us(rows: Attention, launch_us: float, chunks: Array, used: Mask) -> Array:
    sizes = np.unique(rows.chunk[used])
    slopes = []
    for size in sizes:
        mine = used & (rows.chunk == size)
        slopes.append(np.median((rows.chunk_us[mine] - launch_us) / rows.past[mine]))
    rising = np.maximum.accumulate(np.maximum(slopes, 0.0))
    beyond = np.maximum(1.0, chunks / sizes[-1])  # all multiprocessors are busy by then
    return np.asarray(np.interp(chunks, sizes, rising) * beyond)


def _per_pair_us(profile: Profile) -> float:
    """Of a token and one that it attends to, from the longer half of the prompts."""
    attn, tokens = profile.layers_us["attn"], profile.tokens
    half = len(tokens) // 2
    pairs = (tokens[-1] ** 2 - tokens[half] ** 2) / 2
    return max(0.0, float(attn[-1] - attn[half]) / float(pairs))


def _query_heads(target: Deployment) -> int:
    return target.model.num_heads // target.tp


def _unshared_bytes(target: Deployment) -> float:
    """KV of one token of one layer, once for every query head of a rank."""
    return float(_query_heads(target) * target.model.head_dim * KV_AND_BYTES)


def _bytes_per_us(target: Deployment) -> float:
    return float(target.gpu.memory_bandwidth_gb_s * 1e9 / 1e6)
