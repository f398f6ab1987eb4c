"""The tables of a cost, whole-model microseconds, from kernels at the model's own shapes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from servesim.deployment import Deployment
from servesim.hardware.gpu import GPU
from validation.fit.kernels import attention, grids, moe, twins
from validation.fit.kernels.attention import Calls, Prefill
from validation.fit.kernels.gemm import Products
from validation.fit.kernels.link import AllReduce
from validation.fit.kernels.places import Places
from validation.fit.kernels.shapes import (
    SAMPLER_BYTES_PER_LOGIT,
    SAMPLER_US,
    Heads,
    Product,
    Shapes,
)
from validation.sources.tables import Array

MOST_TOKENS = 16384  # of a step: twice the largest default of max_num_batched_tokens
HEAD_ROWS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], dtype=float)
# FlashAttention-2: decodes beside a chunk are not split over their KV, and the query heads of a KV
# head do not share its read. Medians of (call - chunk alone) ÷ decodes alone in LLMServingSim's
# mixed calls (8-64 decodes, chunks from 256 tokens on): 1.4 and 1.8 (RTX PRO 6000, RTX 4090, 4
# query heads per KV head), 2.3 (RTX PRO 6000, 8 query heads)
UNSPLIT_DECODE_SHARE, UNSPLIT_SHARE_PER_HEAD = 1.0, 0.16


@dataclass(frozen=True)
class Kernels:
    """Measured kernels of one engine on one GPU, and the shapes to read them at.

    Attributes:
        deployment: what is served.
        shapes: of a step.
        narrow: products in the weights' dtype.
        wide: products in bf16.
        decodes: attention of decodes, by kind of heads.
        prefills: attention of chunks, by kind of heads.
        splits_kv: whether a chunk's KV is split where tiles are few (FlashAttention-3 and later).
        link: all-reduces; None on one rank.
        moe_us: routed experts of all layers at `rows`; None without them.
        scaled_experts: which measured experts stand for the model's own; empty for themselves.
        rows: tokens of the tables of products, up to MOST_TOKENS.
    """

    deployment: Deployment
    shapes: Shapes
    narrow: Products
    wide: Products
    decodes: dict[Heads, attention.Grid]
    prefills: dict[Heads, Prefill]
    splits_kv: bool
    link: AllReduce | None
    moe_us: Array | None
    scaled_experts: str

    @property
    def rows(self) -> Array:
        """Tokens that products were measured at."""
        return self.narrow.rows[self.narrow.rows <= MOST_TOKENS]

    def of(self, product: Product) -> Products:
        """Table of a product."""
        return self.narrow if product.quantised else self.wide

    def element_wise_us(self, tokens: Array) -> Array:
        """See ElementWise."""
        gb_s = self.deployment.gpu.memory_bandwidth_gb_s
        return np.array([self.shapes.element_wise.us(float(n), gb_s) for n in tokens])

    def product_us(self, product: Product, tokens: Array) -> Array:
        """One product for so many tokens."""
        table = self.of(product)
        us = table.us_at(product.n, product.k, self.deployment.gpu)
        return grids.read(table.rows, us, tokens)


def kernels(places: Places, deployment: Deployment, shapes: Shapes, how: "Formats") -> Kernels:
    """Everything that a step needs, read once."""
    measured = how.measured
    narrow = Products(places.gemm(how.dtype), how.dtype, measured)
    wide = narrow if how.dtype == how.wide else Products(places.gemm(how.wide), how.wide, measured)
    slowdown = twins.slowdown(deployment.gpu, measured)
    decodes, prefills = {}, {}
    for heads in shapes.attention:
        kind = deployment.kv_dtype, heads.head_dim, heads.window
        grid = Calls(places.decode_attention(*kind)).grid(heads.heads, heads.kv_heads)
        decodes[heads] = grid.on_slower_memory(slowdown)
        calls = Calls(places.prefill_attention(*kind))
        prefills[heads] = attention.prefill(calls, heads, splits_kv=how.splits_kv)
    link = AllReduce(places, deployment, how.largest_graph) if deployment.tp > 1 else None
    rows = narrow.rows[narrow.rows <= MOST_TOKENS]
    moe_us, scaled = None, ""
    if shapes.moe:
        moe_us, scaled = _experts_us(places, deployment, shapes, how, rows)
    return Kernels(
        *(deployment, shapes, narrow, wide, decodes, prefills, how.splits_kv, link),
        *(moe_us, scaled),
    )


def _experts_us(
    places: Places, deployment: Deployment, shapes: Shapes, how: "Formats", rows: Array
) -> tuple[Array, str]:
    """Routed experts of all layers, and what stands for those that were not measured."""
    routed = moe.Routed(places.moe(how.dtype), how.dtype, how.measured)
    total, scaled = np.zeros(len(rows)), []
    for layer, count in shapes.moe.items():
        own = moe.Experts.of(layer, deployment.model.hidden_size, deployment.tp)
        donor = routed.donor(own)
        total = total + count * routed.us(own, rows, deployment.gpu)
        if donor != own:
            scaled.append(f"{own}: not measured, as those of {donor}")
    return total, "; ".join(scaled)


@dataclass(frozen=True)
class Formats:
    """How the kernels of a deployment are to be read.

    Attributes:
        dtype: of the weights, as the tables call it.
        measured: the GPU that the tables are of.
        splits_kv: see Kernels.
        largest_graph: tokens of the largest captured CUDA graph.
        wide: of the head and of routers.
    """

    dtype: str
    measured: GPU
    splits_kv: bool
    largest_graph: int
    wide: str = "bf16"


def tree(of: Kernels) -> dict[str, Any]:
    """The `tables` of servesim.cost.kernels.Kernels."""
    rows = of.rows
    seqs, contexts, decode_us = decode_attention(of)
    chunk, past, prefill_us = prefill_attention(of)
    experts = None
    if of.moe_us is not None:
        # measured with the experts that so many tokens activate: not apart from their number
        most = max(moe.num_experts for moe in of.shapes.moe)
        us = np.stack([of.moe_us, of.moe_us], 1)
        experts = {"tokens": rows, "experts": [1, most], "us": us}
    return {
        "dense": {"tokens": rows, "us": grids.never_falling(dense_us(of))},
        "head": {"rows": HEAD_ROWS, "us": grids.never_falling(head_us(of, HEAD_ROWS))},
        "decode_attention": {"seqs": seqs, "context": contexts, "us": decode_us},
        "prefill_attention": {"chunk": chunk, "past": past, "us": prefill_us},
        "mixed_attention": None,
        "mixed": {"decode_share": _decode_share(of)},
        "uneven": {"seqs_equivalent": 0, "whole_from_seqs": 0},
        "all_reduce": None if of.link is None else _all_reduce(of, of.link),
        "moe": experts,
    }


def _decode_share(of: Kernels) -> float:
    """What decodes beside a chunk take, in units of their own call."""
    if of.splits_kv:
        return 1.0
    model = of.deployment.model
    return UNSPLIT_DECODE_SHARE + UNSPLIT_SHARE_PER_HEAD * model.num_heads / model.num_kv_heads


def dense_us(of: Kernels) -> Array:
    """Products and element-wise kernels of all layers at `rows`."""
    total = of.element_wise_us(of.rows)
    for product, count in of.shapes.products.items():
        total = total + count * of.product_us(product, of.rows)
    return np.asarray(total)


def head_us(of: Kernels, rows: Array) -> Array:
    """LM head, collecting its logits from all ranks, and the sampler (an estimate)."""
    return of.product_us(of.shapes.head, rows) + after_head_us(of, rows)


def after_head_us(of: Kernels, rows: Array) -> Array:
    """What follows the product of the LM head."""
    logits = rows * of.deployment.model.vocab_size
    num_bytes = SAMPLER_BYTES_PER_LOGIT * logits
    us = SAMPLER_US + num_bytes / (1e3 * of.deployment.gpu.memory_bandwidth_gb_s)
    if of.link is not None:
        us = us + of.link.gather_us(logits)
    return np.asarray(us)


def decode_attention(of: Kernels) -> tuple[Array, Array, list[list[float]]]:
    """Sequences, contexts, and rows of microseconds that end where nothing was measured."""
    first = next(iter(of.decodes.values()))
    total = np.zeros_like(first.us)
    for heads, grid in of.decodes.items():
        at = grid.at(first.seqs)
        contexts = first.tokens.clip(max=heads.window) if heads.window else first.tokens
        us = np.array([_on(at.tokens, row, contexts) for row in at.us])
        total = total + of.shapes.attention[heads] * us
    total = grids.never_falling(total)
    rows = [[float(us) for us in row[np.isfinite(row)]] for row in total]
    kept = [i for i, row in enumerate(rows) if len(row) > 1]
    return first.seqs[kept], first.tokens, [rows[i] for i in kept]


def _on(tokens: Array, us: Array, wanted: Array) -> Array:
    """A row at `wanted` lengths, with its gaps inside closed and those at its end kept."""
    known = np.isfinite(us)
    if known.sum() < 2:
        return np.full(len(wanted), np.nan)
    return np.where(wanted <= tokens[known].max(), grids.read(tokens, us, wanted), np.nan)


def prefill_attention(of: Kernels) -> tuple[Array, Array, Array]:
    """Chunks, tokens before them, microseconds."""
    chunk = next(iter(of.prefills.values())).tokens
    past = np.array(attention.PASTS, dtype=float)
    total = np.zeros((len(chunk), len(past)))
    for heads, prefill in of.prefills.items():
        before = np.minimum(past, heads.window) if heads.window else past
        total = total + of.shapes.attention[heads] * prefill.at(chunk, before)
    return chunk, past, grids.never_falling(total)


def _all_reduce(of: Kernels, link: AllReduce) -> dict[str, Any]:
    """Two of each layer, and that of the embedding; a step up behind the largest graph."""
    tokens = np.unique(np.append(of.rows, [link.largest_graph, link.largest_graph + 1]))
    us = (2 * of.shapes.layers + 1) * link.us(tokens)
    return {"tokens": tokens, "us": grids.never_falling(us)}
