"""The tables of a kernel cost: their YAML, their checks, how they are read.

All are microseconds of the whole model on one rank. Knots increase, and microseconds never fall
along an axis, so that a step does not get cheaper when it gets larger: what is measured with noise
is to be levelled before. Below the first knot, a table is read at it; beyond the last one, the
slope of the last two goes on.

    dense: {tokens: [...], us: [...]}  # all but what follows, by the tokens of the batch
    head: {rows: [...], us: [...]}  # LM head and sampler; nothing where no row is sampled
    decode_attention: {seqs: [...], context: [...], us: [[...], ...]}  # us[seqs][context]
    prefill_attention: {chunk: [...], past: [...], us: [[...], ...]}  # us[chunk][past]
    mixed_attention: null | {chunk: [...], past: [...], seqs: [...], context: [...],
                             us: ...}  # us[chunk][past][seqs][context]
    mixed: {decode_share: 1.0}
    uneven: {seqs_equivalent: 0.0, whole_from_seqs: 0}
    all_reduce: null | {tokens: [...], us: [...]}  # all of a step
    moe: null | {tokens: [...], experts: [...], us: [[...], ...]}  # routed experts, all layers
    exchange: null | {2: {tokens: [...], us: [...]}, ...}  # by data-parallel ranks; optional

`context` is the mean over the sequences (in `mixed_attention`, `kv` is accepted as its name). Where
long contexts of many sequences were not measured, a row of `decode_attention` ends early, or in
nulls.
`prefill_attention` is one chunk alone; each further chunk of a step adds what it takes beyond the
smallest one. `mixed_attention` is one call of a chunk and decodes; without it, decodes beside a
chunk take `decode_share` of their own call. From `whole_from_seqs` decodes on, the longest one
counts as `seqs_equivalent` further sequences over the tokens by which it exceeds the mean.
`experts` are distinct ones that a step activates, per layer. `exchange` is that of so many tokens,
of all data-parallel ranks together, before and behind split experts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from servesim import checks
from servesim.cost.coefficients import Curve
from servesim.cost.decode_grid import DecodeGrid
from servesim.cost.interpolation import ChunkGrid, Grid, Row
from servesim.cost.mixed_grid import MixedGrid
from servesim.errors import SettingError, nearest

_AXES = {
    "dense": ("tokens",),
    "head": ("rows",),
    "decode_attention": ("seqs", "context"),
    "prefill_attention": ("chunk", "past"),
    "mixed_attention": ("chunk", "past", "seqs", "context"),
    "all_reduce": ("tokens",),
    "moe": ("tokens", "experts"),
}
_SHARES = {"mixed": ("decode_share",), "uneven": ("seqs_equivalent", "whole_from_seqs")}
_MAY_BE_NULL = ("mixed_attention", "all_reduce", "moe")
_FROM_ONE = ("seqs", "chunk")  # a table of no sequences or no chunk has no meaning
_RAGGED = ("seqs", "context")  # axes of the table whose rows may end early


@dataclass(frozen=True, slots=True)
class Tables:
    """All parts of a step, ready to be read.

    Attributes:
        dense: by tokens.
        head: by sampled rows.
        decode_attention: by sequences and their total context.
        one_measured: whether that holds a sequence alone.
        prefill_attention: by new tokens and tokens before them.
        mixed_attention: by both; None where chunk and decodes are added up.
        decode_share: of decodes beside a chunk, see above.
        seqs_equivalent: see above.
        whole_from_seqs: see above.
        all_reduce: by tokens; None on one GPU.
        moe: by tokens and activated experts; None without routed experts.
        exchange: by tokens of all data-parallel ranks, for each measured number of ranks.
    """

    dense: Curve
    head: Curve
    decode_attention: DecodeGrid
    one_measured: bool
    prefill_attention: ChunkGrid
    mixed_attention: MixedGrid | None
    decode_share: float
    seqs_equivalent: float
    whole_from_seqs: int
    all_reduce: Curve | None
    moe: Grid | None
    exchange: Mapping[int, Curve]


def parse(tree: object) -> Tables:
    """Tables from their YAML tree.

    Raises:
        SettingError: one is missing, unknown, of the wrong shape, or falls.
    """
    known = (*_AXES, *_SHARES)
    if not isinstance(tree, Mapping):
        raise SettingError("tables", tree, f"must be a mapping with {', '.join(known)}")
    exchange = _exchange(tree.get("exchange"))
    tree = {name: table for name, table in tree.items() if name != "exchange"}
    _same_keys("tables", tree, known)
    read = {name: _table(f"tables.{name}", tree[name], axes) for name, axes in _AXES.items()}
    share, uneven = (_numbers(f"tables.{n}", tree[n], keys) for n, keys in _SHARES.items())
    equivalent, whole_from = uneven["seqs_equivalent"], uneven["whole_from_seqs"]
    checks.whole("tables.uneven.whole_from_seqs", whole_from)
    if equivalent > max(whole_from, 1):
        # a longer context raises the mean that the longest is compared with
        reason = "must be at most whole_from_seqs, or longer contexts get cheaper"
        raise SettingError("tables.uneven.seqs_equivalent", equivalent, reason)
    (seqs, contexts), rows = read["decode_attention"]
    (chunks, pasts), of_chunks = read["prefill_attention"]
    return Tables(
        dense=_curve(read["dense"]),
        head=_curve(read["head"]),
        decode_attention=DecodeGrid(seqs, contexts, rows),
        one_measured=seqs[0] == 1,
        prefill_attention=ChunkGrid(chunks, pasts, of_chunks),
        mixed_attention=_mixed(read["mixed_attention"]),
        decode_share=float(share["decode_share"]),
        seqs_equivalent=float(equivalent),
        whole_from_seqs=whole_from,
        all_reduce=_curve(read["all_reduce"]) if read["all_reduce"] else None,
        moe=_grid(read["moe"]) if read["moe"] else None,
        exchange=exchange,
    )


def _curve(table: Any) -> Curve:
    (knots,), us = table
    return Curve(knots, us)


def _grid(table: Any) -> Grid:
    (xs, ys), us = table
    return Grid(xs, ys, us)


def _mixed(table: Any) -> MixedGrid | None:
    if table is None:
        return None
    (chunks, pasts, seqs, contexts), us = table
    return MixedGrid(chunks, pasts, (seqs, contexts), us)


def _exchange(tree: Any) -> Mapping[int, Curve]:
    """By data-parallel ranks; empty where there is none."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise SettingError("tables.exchange", tree, "must be a mapping of ranks to their table")
    for ranks in tree:
        checks.whole("tables.exchange", ranks, at_least=2)
    return {
        ranks: _curve(_table(f"tables.exchange.{ranks}", table, ("tokens",)))
        for ranks, table in tree.items()
    }


def _table(name: str, tree: Any, axes: tuple[str, ...]) -> Any:
    """(knots of each axis, nested microseconds), or None."""
    if tree is None and name.removeprefix("tables.") in _MAY_BE_NULL:
        return None
    if not isinstance(tree, Mapping):
        raise SettingError(name, tree, f"must be a mapping with {', '.join(axes)} and us")
    if "kv" in tree and len(axes) > 2:
        tree = {("context" if key == "kv" else key): value for key, value in tree.items()}
    _same_keys(name, tree, (*axes, "us"))
    knots = tuple(_knots(f"{name}.{axis}", tree[axis], axis in _FROM_ONE) for axis in axes)
    us = _nested(f"{name}.us", tree["us"], [len(k) for k in knots], axes == _RAGGED)
    return knots, us


def _knots(name: str, values: Any, from_one: bool) -> Row:
    if not isinstance(values, list | tuple):
        raise SettingError(name, values, "must be a list of numbers")
    for value in values:
        checks.not_negative(name, value)
    if len(values) < 2 or any(b <= a for a, b in pairwise(values)):
        raise SettingError(name, list(values), "must be two or more, and increase")
    if from_one and values[0] < 1:
        raise SettingError(name, list(values), "must begin at 1 or more")
    return tuple(float(value) for value in values)


def _nested(name: str, us: Any, lengths: Sequence[int], ragged: bool) -> Any:
    """Nested tuples of floats, as deep as there are lengths, that fall along no axis."""
    if not isinstance(us, list | tuple):
        raise SettingError(name, us, f"must be {len(lengths)}-fold lists of microseconds")
    if len(lengths) == 1:
        return _row(name, us, lengths[0], ragged)
    if len(us) != lengths[0]:
        raise SettingError(name, f"{len(us)} lists", f"must be {lengths[0]}, one for each knot")
    parts = tuple(_nested(f"{name}[{i}]", part, lengths[1:], ragged) for i, part in enumerate(us))
    for i, (before, after) in enumerate(pairwise(parts)):
        if _falls(before, after):
            raise SettingError(f"{name}[{i + 1}]", us[i + 1], f"must nowhere be below [{i}]")
    return parts


def _row(name: str, us: Sequence[Any], length: int, ragged: bool) -> Row:
    values = list(us)
    if ragged:
        while values and values[-1] is None:
            values.pop()
    if len(values) > length or len(values) < (2 if ragged else length):
        wanted = f"2 to {length}" if ragged else f"{length}"
        raise SettingError(name, list(us), f"must have {wanted} values, one for each knot")
    for value in values:
        checks.not_negative(name, value)
    if any(b < a for a, b in pairwise(values)):
        raise SettingError(name, values, "must not fall from one knot to the next")
    return tuple(float(value) for value in values)


def _falls(before: Any, after: Any) -> bool:
    """Whether any microsecond falls from one to the other, where both have it."""
    if isinstance(before, float):
        return bool(after < before)
    return any(_falls(a, b) for a, b in zip(before, after, strict=False))


def _numbers(name: str, tree: Any, keys: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise SettingError(name, tree, f"must be a mapping with {', '.join(keys)}")
    _same_keys(name, tree, keys)
    for key in keys:
        checks.not_negative(f"{name}.{key}", tree[key])
    return tree


def _same_keys(name: str, tree: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in tree:
        if key not in known:
            raise SettingError(f"{name}.{key}", tree[key], f"is unknown{nearest(key, known)}")
    for key in known:
        if key not in tree:
            raise SettingError(f"{name}.{key}", None, "is missing")
