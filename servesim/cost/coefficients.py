"""The coefficients of a fitted cost, part by part: what each means, and their checks.

All are microseconds, counts or shares and none may be negative, so no part of a step gets cheaper
when the step gets larger.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from servesim import checks
from servesim.errors import SettingError, nearest


@dataclass(frozen=True, slots=True)
class Curve:
    """Microseconds at knots, linear between them; beyond the last knot its slope goes on.

    Attributes:
        knots: increasing, two or more.
        us: microseconds at each knot, never falling.
    """

    knots: tuple[float, ...]
    us: tuple[float, ...]

    def at(self, x: float) -> float:
        """Microseconds at `x`; below the first knot, those of the first knot."""
        knots, us = self.knots, self.us
        if x <= knots[0]:
            return us[0]
        i = min(bisect_right(knots, x), len(knots) - 1) - 1
        return us[i] + (us[i + 1] - us[i]) * (x - knots[i]) / (knots[i + 1] - knots[i])

    def scaled(self, share: float) -> "Curve":
        """The same knots with `share` of the time."""
        return Curve(self.knots, tuple(share * us for us in self.us))


@dataclass(frozen=True, slots=True)
class Dense:
    """Everything of one layer but attention, by the tokens of the batch.

    Matrix kernels work in tiles of rows, so their time climbs in stairs: beyond one tile, the
    curve is read at a point between the tokens and the tokens rounded up to whole tiles.

    Attributes:
        knots_tokens: knots of the curve.
        us: microseconds of one layer at each knot.
        tile_tokens: rows of a tile.
        tile_share: 0 takes the tokens as they are, 1 whole tiles.
    """

    knots_tokens: tuple[float, ...]
    us: tuple[float, ...]
    tile_tokens: float
    tile_share: float

    def __post_init__(self) -> None:
        _check_curve("knots_tokens", self.knots_tokens, self.us)
        checks.positive("tile_tokens", self.tile_tokens)
        checks.fraction("tile_share", self.tile_share)


@dataclass(frozen=True, slots=True)
class Once:
    """Embedding and final norm, once per step."""

    us: float
    us_per_token: float


@dataclass(frozen=True, slots=True)
class Head:
    """LM head and sampler, by the rows that are sampled; nothing where no row is."""

    knots_rows: tuple[float, ...]
    us: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_curve("knots_rows", self.knots_rows, self.us)


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """Attention of one layer in a call that holds decodes of one token only.

    A call of few sequences splits each one's KV over idle multiprocessors. With `whole_from_seqs`
    or more it does not, and the longest sequence ends after the others.

    Attributes:
        us: of the call.
        us_per_seq: for each sequence.
        us_per_kv_token: for each token of context.
        us_per_first_kv_token: further, for each of the first `first_kv_tokens`: short reads do
            not fill the memory pipes.
        first_kv_tokens: how many those are.
        whole_from_seqs: sequences from which KV is not split.
        us_if_whole: then, once: the last round of sequences leaves multiprocessors idle.
        us_per_uneven_token: then, for each token by which the longest exceeds the mean.
    """

    us: float
    us_per_seq: float
    us_per_kv_token: float
    us_per_first_kv_token: float
    first_kv_tokens: float
    whole_from_seqs: float
    us_if_whole: float
    us_per_uneven_token: float

    def __post_init__(self) -> None:
        # a longer context raises the mean that the longest is compared with
        if self.us_per_uneven_token > self.us_per_kv_token * self.whole_from_seqs:
            raise SettingError(
                "us_per_uneven_token",
                self.us_per_uneven_token,
                "must be at most us_per_kv_token × whole_from_seqs, or longer contexts get cheaper",
            )


@dataclass(frozen=True, slots=True)
class MixedAttention:
    """Attention of one layer in a call that holds prefill chunks, or drafts, beside decodes.

    The call is a list of equal tasks, a tile of `tile_queries` queries of one chunk or one decode
    each, that walk their KV. It ends no sooner than its longest task, and no sooner than the sum
    of all tasks over the multiprocessors plus a share of the longest task for the ragged end
    (Graham's bound for list scheduling); nor than decodes of the same contexts would.

    Attributes:
        tile_queries: queries per task.
        task_us: length of a task.
        task_us_per_kv_token: for each token of KV that it walks.
        us_per_launched_tile: throughput: of every block of the launch, as many for each request as
            the longest chunk has tiles (the kernel's grid); most of a decode's end at once.
        us_per_tile: of one tile of a chunk.
        us_per_tile_kv_token: of a tile, for each token of KV.
        us_per_seq: of one decode.
        us_per_kv_token: of a decode, for each token of context.
        ragged_share: of the longest task, at the end.
        us_per_spilled_kv_token: further, for each token of context beyond `spill_kv_tokens`, times
            1 − spill_seqs / decodes: query heads that share KV no longer meet in the cache.
        spill_kv_tokens: tokens of context of all decodes that the cache serves.
        spill_seqs: decodes up to which it serves any context.
    """

    tile_queries: int
    task_us: float
    task_us_per_kv_token: float
    us_per_launched_tile: float
    us_per_tile: float
    us_per_tile_kv_token: float
    us_per_seq: float
    us_per_kv_token: float
    ragged_share: float
    us_per_spilled_kv_token: float
    spill_kv_tokens: float
    spill_seqs: float

    def __post_init__(self) -> None:
        checks.whole("tile_queries", self.tile_queries, at_least=1)


@dataclass(frozen=True, slots=True)
class Host:
    """Time per step during which the GPU waits for the host.

    What was left of measured steps beside the kernels: of an engine that plans a step while the
    one before it runs, what that does not hide. It is added whatever the simulated engine does.
    """

    us: float
    us_per_seq: float


@dataclass(frozen=True, slots=True)
class Link:
    """All-reduces between tensor-parallel ranks, two per layer; zero on one GPU.

    Attributes:
        us: of one all-reduce, whatever its size.
        us_per_token: of one all-reduce, for each token of the batch.
    """

    us: float
    us_per_token: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """All parts of a step."""

    dense: Dense
    once: Once
    head: Head
    decode_attention: DecodeAttention
    mixed_attention: MixedAttention
    link: Link
    host: Host


def parse(tree: object) -> Coefficients:
    """Coefficients from their YAML tree.

    Raises:
        SettingError: a part or coefficient is missing, unknown, negative or no number.
    """
    if not isinstance(tree, Mapping):
        raise SettingError("coefficients", tree, "must be a mapping of the parts of a step")
    parts: dict[str, Any] = {part.name: part.type for part in fields(Coefficients)}
    _same_keys("coefficients", tree, tuple(parts))
    built = {part: _part(f"coefficients.{part}", kind, tree[part]) for part, kind in parts.items()}
    return Coefficients(**built)


def _part(name: str, kind: type, tree: object) -> Any:
    """One part; `kind` says which coefficients it has, and which of them are lists."""
    if not isinstance(tree, Mapping):
        raise SettingError(name, tree, "must be a mapping of coefficients")
    _same_keys(name, tree, tuple(field.name for field in fields(kind)))
    values: dict[str, Any] = {}
    for field in fields(kind):
        setting, value = f"{name}.{field.name}", tree[field.name]
        if field.type in (float, int):
            checks.not_negative(setting, value)
            values[field.name] = value
            continue
        if not isinstance(value, list | tuple):
            raise SettingError(setting, value, "must be a list of numbers")
        for entry in value:
            checks.not_negative(setting, entry)
        values[field.name] = tuple(float(entry) for entry in value)
    try:
        return kind(**values)
    except SettingError as error:
        raise error.within(name) from None


def _same_keys(name: str, tree: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in tree:
        if key not in known:
            raise SettingError(f"{name}.{key}", tree[key], f"is unknown{nearest(key, known)}")
    for key in known:
        if key not in tree:
            raise SettingError(f"{name}.{key}", None, "is missing")


def _check_curve(knots_name: str, knots: tuple[float, ...], us: tuple[float, ...]) -> None:
    if len(knots) < 2 or any(b <= a for a, b in pairwise(knots)):
        raise SettingError(knots_name, list(knots), "must be two or more, and increase")
    if len(us) != len(knots):
        raise SettingError("us", list(us), f"must have one value for each of {knots_name}")
    if any(b < a for a, b in pairwise(us)):
        raise SettingError("us", list(us), "must not fall from one knot to the next")
