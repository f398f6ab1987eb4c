"""What the fits share: which points are held out, and what a point of attention weighs."""

import zlib
from dataclasses import dataclass

import numpy as np

from servesim.deployment import Deployment
from validation.sources.llmservingsim import Profile
from validation.sources.tables import Array

HOLD_OUT_EVERY = 5
# outside of these a point weighs a third: chat traffic (ShareGPT, Azure) lies mostly inside, a
# batch whose every context is shorter is hardly ever served
USUAL_CONTEXT_TOKENS = (128, 4096)
RARE_WEIGHT = 0.3

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Attention:
    """Rows of an attention table, with the rest of their step.

    Attributes:
        chunk: tokens of the prefill chunk, or 0.
        past: tokens of KV before it.
        seqs: decodes.
        kv: context of each.
        us: measured time of one layer.
        rest_us: of the same step without attention, per layer, from the dense and head tables.
    """

    chunk: Array
    past: Array
    seqs: Array
    kv: Array
    us: Array
    rest_us: Array

    def where(self, mask: Mask) -> "Attention":
        """The rows of `mask`."""
        fields = (self.chunk, self.past, self.seqs, self.kv, self.us, self.rest_us)
        return Attention(*(column[mask] for column in fields))

    @property
    def weight(self) -> Array:
        """1, or less for very short and long contexts."""
        short, long = USUAL_CONTEXT_TOKENS
        usual = (self.kv <= long) & (self.past <= long) & ((self.kv >= short) | (self.seqs == 0))
        return np.where(usual, 1.0, RARE_WEIGHT)

    def residual(self, predicted_us: Array) -> Array:
        """Relative error, mostly of the step and partly of attention alone.

        30 % of the denominator is attention itself: a decode step of few sequences must not be
        bought with one of long contexts, where attention is most of the step.
        """
        scale = 0.3 * self.us + 0.7 * (self.us + self.rest_us)
        return np.asarray(self.weight * (predicted_us - self.us) / scale)


def held_out(*columns: Array) -> Mask:
    """A fixed fifth of the rows, by a hash of their coordinates: the same in every run."""
    keys = (",".join(f"{value:g}" for value in row) for row in zip(*columns, strict=True))
    return np.array([zlib.crc32(key.encode()) % HOLD_OUT_EVERY == 0 for key in keys], dtype=bool)


# the grid doubles, so the first point beyond the capacity is needed to fit up to it
BEYOND_CAPACITY = 2.0


def kv_capacity(deployment: Deployment, utilization: float) -> float:
    """Tokens of KV beside the weights; a one-layer profile goes further, a server cannot."""
    model, gpu = deployment.model, deployment.gpu
    room = gpu.memory_gib * 2**30 * utilization
    room -= model.weight_bytes(deployment.dtype, deployment.tp)
    return room / model.kv_bytes_per_token(deployment.kv_dtype, deployment.tp)


def attention_rows(profile: Profile, num_layers: int, kv_tokens: float) -> Attention:
    """The rows about as far as `kv_tokens` of KV, whose tokens the dense table covers."""
    table = profile.attention
    chunk, past, seqs, kv, us = table.values()
    tokens = chunk + seqs
    # the next measured count of tokens, not a line to it: matrix kernels work in tiles of rows, and
    # the RTX 4090's table rises by 40 % from 256 to 272 tokens
    up = np.minimum(np.searchsorted(profile.tokens, tokens), len(profile.tokens) - 1)
    rows = seqs + (chunk > 0)
    head = np.interp(rows, profile.rows, profile.head_us)
    rest = profile.layer_us[up] + (profile.once_us[up] + head) / num_layers
    reachable = (past + chunk + seqs * kv <= BEYOND_CAPACITY * kv_tokens) & (
        tokens <= profile.tokens[-1]
    )
    return Attention(chunk, past, seqs, kv, us, rest).where(reachable)


def measured_ranges(profile: Profile, calls: Array) -> dict[str, list[int]]:
    """What was measured, by the axes of servesim/cost/fit_range.py.

    Args:
        profile: whose dense and head tables say how many tokens and rows.
        calls: rows of chunk, past, seqs and kv, a column for each call of attention.
    """
    (_, _, seqs, kv), (chunk, past, _, _) = calls[:, calls[2] > 0], calls[:, calls[0] > 0]
    axes = {
        "tokens": profile.tokens,
        "sampled_rows": profile.rows,
        "decode_seqs": seqs,
        "longest_decode_context": kv,
        "longest_prefill_context": past + chunk,
        "prefill_past": past,
        "kv_tokens": calls[1] + calls[0] + calls[2] * calls[3],
    }
    return {name: [int(axis.min()), int(axis.max())] for name, axis in axes.items()}
