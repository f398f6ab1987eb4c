"""The range of batches that a fit has seen, axis by axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from servesim import checks
from servesim.cost.batch import Batch, only_decodes
from servesim.errors import SettingError, UnknownChoiceError, nearest
from servesim.records import Decodes

# in the order in which `outside` looks at them
AXES = (
    "tokens",
    "sampled_rows",
    "decode_seqs",
    "longest_decode_context",
    "longest_prefill_context",
    "prefill_past",
    "kv_tokens",
)
LONGEST_DECODE, KV_TOKENS = AXES.index("longest_decode_context"), AXES.index("kv_tokens")
NO_LIMIT = 2**62  # steps or tokens
# kernels read KV by the block, so a context within its first one costs what a whole block does:
# where a fit begins with a block or less (vLLM's default size), no context is below it
KV_BLOCK_TOKENS = 16
CONTEXTS = ("longest_decode_context", "longest_prefill_context", "kv_tokens")


class FitRange:
    """Smallest and largest measured value of each axis.

    Attributes:
        bounds: axis → (smallest, largest).
    """

    def __init__(self, tree: object) -> None:
        """From the YAML tree, axis → [smallest, largest].

        Raises:
            SettingError: an axis is missing or unknown, or its bounds are no range.
        """
        if not isinstance(tree, Mapping):
            raise SettingError("fit_range", tree, f"must be a mapping with {', '.join(AXES)}")
        for axis in tree:
            if axis not in AXES:
                unknown = f"is unknown{nearest(axis, AXES)}"
                raise SettingError(f"fit_range.{axis}", tree[axis], unknown)
        for axis in AXES:
            if axis not in tree:
                raise SettingError(f"fit_range.{axis}", None, f"is missing{nearest(axis, tree)}")
        self.bounds = {axis: _bounds(f"fit_range.{axis}", tree[axis]) for axis in AXES}
        self._of_decodes: dict[tuple[int, bool, bool, bool, bool], tuple[str, ...]] = {}
        # batches are counted in whole numbers
        self._limits = tuple(
            (0 if axis in CONTEXTS and low <= KV_BLOCK_TOKENS else math.ceil(low), int(high))
            for axis, (low, high) in self.bounds.items()
        )

    def of(self, axis: str) -> tuple[float, float]:
        """Smallest and largest measured value of `axis`, or UnknownChoiceError."""
        if axis not in self.bounds:
            raise UnknownChoiceError("axis", axis, AXES)
        return self.bounds[axis]

    def outside(self, b: Batch) -> tuple[str, ...]:
        """Axes above their range, or below it; a step without any of what an axis counts is in."""
        # the mean context is none of them: it is no longer than the longest
        kv_tokens = b.context + b.chunk_context
        values = (b.tokens, b.rows, b.seqs, b.longest, b.chunk_longest, b.past, kv_tokens)
        for value, (low, high) in zip(values, self._limits, strict=True):
            if value > high or 0 < value < low:
                break
        else:
            return ()
        return tuple(
            axis
            for axis, value, (low, high) in zip(AXES, values, self._limits, strict=True)
            if value > high or 0 < value < low
        )

    def outside_decodes(self, decodes: Decodes) -> tuple[str, ...]:
        """`outside` of requests that compute and sample one token each."""
        seqs, context, longest = decodes
        low, high = self._limits[LONGEST_DECODE]
        kv_low, kv_high = self._limits[KV_TOKENS]
        # on all other axes, the number of requests decides
        sides = (seqs, longest < low, longest > high, context < kv_low, context > kv_high)
        axes = self._of_decodes.get(sides)
        if axes is None:
            axes = self._of_decodes[sides] = self.outside(only_decodes(decodes))
        return axes

    def steps_alike(self, decodes: Decodes) -> int:
        """For how many steps, at least one, these decodes stay on the same side of every bound."""
        steps = NO_LIMIT
        for axis, value, growth in (
            (LONGEST_DECODE, decodes.longest, 1),
            (KV_TOKENS, decodes.context, decodes.seqs),
        ):
            low, high = self._limits[axis]
            if value < low:
                steps = min(steps, -(-(low - value) // growth))
            elif value <= high:
                steps = min(steps, (high - value) // growth + 1)
        return steps


def _bounds(setting: str, bounds: Any) -> tuple[float, float]:
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
        raise SettingError(setting, bounds, "must be [smallest, largest]")
    for bound in bounds:
        checks.not_negative(setting, bound)
    low, high = bounds
    if low > high:
        raise SettingError(setting, list(bounds), "must not fall")
    return float(low), float(high)
