"""How many bytes a weight of a quantised checkpoint takes, and which weights stay as they are."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.parts import Weights

_SIXTEEN_BITS = 2
_WRAPPERS = ("model.language_model.", "language_model.model.", "model.", "language_model.")
_PREFIX = re.compile("^(?:" + "|".join(map(re.escape, (*_WRAPPERS, "backbone."))) + ")")
# names of a module in a checkpoint that differ from ours
_OTHER_NAMES = (
    (re.compile(r"\b(?:block_sparse_moe|ffn)\b"), "mlp"),
    (re.compile(r"\battn\b"), "self_attn"),
    (re.compile(r"\bshared_expert\b"), "shared_experts"),
    (re.compile(r"\bmlp\.router\b|(?<=\.)router\b"), "mlp.gate"),
    (re.compile(r"^head$"), "lm_head"),
)
_MIXER = re.compile(r"\b(?:self_attn|mlp)\b")  # Nemotron-H calls each half of a layer a mixer
# what `re:` patterns are made of; no quantifier on a group, so that none takes exponential time
_TOKEN = r"(?:[\w\-]|\\[.\-d]|\.\*|\.|\[[\w\-]+\]\+?|\\d\+|\^|\$|\((?:\?:)?[\w.\\|\-]*\))"
_PLAIN_EXPRESSION = re.compile(f"{_TOKEN}*")
_MOST_STARS = 6


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The number format of a checkpoint's linear layers.

    Routers, norms and embeddings are never quantised, towers neither.

    Attributes:
        name: e.g. "nvfp4".
        per_weight: bytes of one quantised weight, its share of the scales included; None where
            only the modules in `others` are quantised.
        dtype: of the weights that are not quantised.
        ignored: patterns of modules that stay in `dtype`, as the checkpoint writes them: a name,
            a name with `*`, or `re:` and a regular expression.
        others: modules with a format of their own: (patterns, bytes of a weight).
        head: whether the output head is quantised too.
    """

    name: str
    per_weight: Fraction | None
    dtype: str
    ignored: tuple[str, ...] = ()
    others: tuple[tuple[tuple[str, ...], Fraction], ...] = ()
    head: bool = False

    def bytes_per_weight(self, layer: int | None, weights: Weights, dtype: str) -> Fraction:
        """Of this module in this layer, where the rest of the model is served in `dtype`."""
        plain = dtype if DTYPE_BYTES[dtype] >= _SIXTEEN_BITS else self.dtype
        unquantised = Fraction(DTYPE_BYTES[plain])
        if not weights.linear or weights.part == "router":
            return unquantised
        if weights.part == "head" and not self.head:
            return unquantised
        name = weights.module if layer is None else f"layers.{layer}.{weights.module}"
        for patterns, size in self.others:
            if _matcher(patterns).covers(name):
                return size
        if self.per_weight is None or _matcher(self.ignored).covers(name):
            return unquantised
        return self.per_weight


def is_pattern(pattern: str) -> bool:
    """Whether `pattern` is one that can be matched, and quickly."""
    if not pattern.startswith("re:"):
        return True
    text = pattern[3:]
    if _PLAIN_EXPRESSION.fullmatch(text) is None or text.count("*") > _MOST_STARS:
        return False
    try:
        re.compile(text)
    except re.error:
        return False
    return True


class _Matcher:
    """Whether a module is named by one of some patterns, itself or as a part of what is named."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._names: set[str] = set()
        stars, expressions = [], []
        for pattern in patterns:
            if pattern.startswith("re:"):
                expressions.append(pattern[3:])
                continue
            name = _canonical(pattern)
            if "*" in name:
                pieces = (re.escape(piece) for piece in re.split(r"\*+", name.rstrip(".")))
                stars.append(".*".join(pieces))
            else:
                self._names.add(name)
        self._stars, self._expressions = _any_of(stars), _any_of(expressions)

    def covers(self, module: str) -> bool:
        """Whether `module`, or a module that it is part of, is named."""
        return self._names_it(module) or self._names_it(_MIXER.sub("mixer", module))

    def _names_it(self, module: str) -> bool:
        steps = module.split(".")
        if steps[-1] in self._names or self._stars.match(module):
            return True
        if any(".".join(steps[:end]) in self._names for end in range(1, len(steps) + 1)):
            return True
        return any(self._expressions.match(prefix + module) for prefix in ("", *_WRAPPERS))


def _any_of(expressions: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in expressions) or r"(?!)")


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> _Matcher:
    return _Matcher(patterns)


def _canonical(pattern: str) -> str:
    """A pattern in our names, without the prefixes by which wrappers differ."""
    name = _PREFIX.sub("", pattern)
    for theirs, ours in _OTHER_NAMES:
        name = theirs.sub(ours, name)
    return name
