"""What the tables of a deployment are wrong by, on measurements that they are read without.

The tables hold every measurement; these errors come from reading them with a fifth of the shapes
of products and of the calls of attention left out, chosen by a hash of their coordinates. In a
whole step, each product of the model stands for the measured shape nearest to its own, and all of
these shapes are left out as well.
"""

import numpy as np

from validation.fit.check import Part
from validation.fit.kernels import grids, tables
from validation.fit.kernels.gemm import Products
from validation.fit.kernels.shapes import Product
from validation.fit.kernels.tables import Kernels
from validation.fit.rows import Mask, held_out
from validation.sources.tables import Array

Indices = np.ndarray[tuple[int], np.dtype[np.intp]]


def parts(of: Kernels) -> list[Part]:
    """Products, attention of decodes and of prompts, and steps of both; steps last."""
    step = _Step(of)
    decode, where, decode_step = _decodes(of, step)
    prefill, prompts, prefill_step = _prefills(of, step)
    both = np.concatenate([decode_step, prefill_step])
    return [
        _products(of.narrow),
        _part("decode_attention", decode, where),
        _part("prefill_attention", prefill, prompts),
        _part("step", both, where + prompts),
    ]


class _Step:
    """Products of whole steps at measured shapes: as measured, and as read without them."""

    def __init__(self, of: Kernels) -> None:
        self._of = of
        self._others = of.element_wise_us(of.rows)
        if of.moe_us is not None:
            self._others = self._others + of.moe_us
        every = [*of.shapes.products, of.shapes.head]
        without = {
            id(table): _without(table, [p for p in every if of.of(p) is table])
            for table in (of.narrow, of.wide)
        }
        self.measured, self.read = self._total(of.shapes.products, without)
        self.head_measured, self.head_read = self._total({of.shapes.head: 1}, without)

    def _total(
        self, counts: dict[Product, int], without: dict[int, dict[int, Array]]
    ) -> tuple[Array, Array]:
        rows = self._of.rows
        measured, predicted = np.zeros(len(rows)), np.zeros(len(rows))
        for product, count in counts.items():
            table = self._of.of(product)
            one = table.nearest(product.n, product.k)
            us = table.us[one]
            measured += count * grids.read(table.rows, us, rows)
            predicted += count * grids.read(table.rows, without[id(table)].get(one, us), rows)
        return measured, predicted

    def error(self, tokens: Array, rows: Array, attention: tuple[Array, Array]) -> Array:
        """Of steps of so many tokens and sampled rows; attention is as measured, as read."""
        of = self._of
        same = grids.read(of.rows, self._others, tokens) + tables.after_head_us(of, rows)
        if of.link is not None:
            same = same + (2 * of.shapes.layers + 1) * of.link.us(tokens)
        measured, read = (
            grids.read(of.rows, dense, tokens) + grids.read(of.rows, head, rows) + layers + same
            for dense, head, layers in zip(
                (self.measured, self.read), (self.head_measured, self.head_read), attention,
                strict=True,
            )
        )  # fmt: skip
        return np.asarray(read / measured - 1)


def _without(table: Products, products: list[Product]) -> dict[int, Array]:
    """Shapes that stand for these products, as read without them all and without the fifth.

    One on the edge of the measured shapes has no neighbours on both sides and stays.
    """
    left_out = table.held()
    low, high = table.shapes.min(axis=0), table.shapes.max(axis=0)
    nearest = {table.nearest(product.n, product.k) for product in products}
    for one in nearest:
        left_out[one] = bool(((low < table.shapes[one]) & (table.shapes[one] < high)).all())
    read = dict(zip(np.flatnonzero(left_out).tolist(), table.us_without(left_out), strict=True))
    return {one: read[one] for one in nearest if left_out[one]}


def _products(table: Products) -> Part:
    held = table.held()
    error = table.us_without(held) / table.us[held] - 1
    names = [f"rows={m:g} n={n:g} k={k:g}" for n, k in table.shapes[held] for m in table.rows]
    known = table.measured[held].ravel()
    return _part(
        "products", error.ravel()[known], [n for n, ok in zip(names, known, strict=True) if ok]
    )


def _decodes(of: Kernels, step: _Step) -> tuple[Array, list[str], Array]:
    """Decodes of the first kind of heads; read along the contexts of as many sequences."""
    heads, grid = next(iter(of.decodes.items()))
    layers = of.shapes.attention[heads]
    measured, read, where = [], [], []
    for seqs, row in zip(grid.seqs, grid.us, strict=True):
        known = np.flatnonzero(np.isfinite(row))
        left_out = _inner(known, held_out(np.full(len(known), seqs), grid.tokens[known]))
        used = np.setdiff1d(known, left_out)
        if len(left_out) and len(used) > 1:
            measured += list(row[left_out])
            read += list(np.interp(grid.tokens[left_out], grid.tokens[used], row[used]))
            where += [(seqs, tokens) for tokens in grid.tokens[left_out]]
    us = layers * np.array(measured), layers * np.array(read)
    seqs = np.array([seqs for seqs, _ in where])
    names = [f"decodes={n:g} context={c:g}" for n, c in where]
    return us[1] / us[0] - 1, names, step.error(seqs, seqs, us)


def _prefills(of: Kernels, step: _Step) -> tuple[Array, list[str], Array]:
    """Prompts alone, with nothing before them."""
    heads, prefill = next(iter(of.prefills.items()))
    layers = of.shapes.attention[heads]
    known = np.arange(len(prefill.tokens))
    left_out = _inner(known, known % 3 == 1)
    used = np.setdiff1d(known, left_out)
    tokens = prefill.tokens[left_out]
    measured = layers * prefill.us[left_out]
    read = layers * grids.read(prefill.tokens[used], prefill.us[used], tokens)
    names = [f"prompt={n:g}" for n in tokens]
    return read / measured - 1, names, step.error(tokens, np.ones_like(tokens), (measured, read))


def _inner(known: Indices, held: Mask) -> Indices:
    """Held-out points with a measured one on both sides."""
    inner = held.copy()
    inner[[0, -1]] = False
    return known[inner]


def _part(name: str, error: Array, where: list[str]) -> Part:
    return Part(name, error, where[int(np.abs(error).argmax())])
