"""Routed experts of a step: at the model's own sizes, or scaled from those of another.

Which experts the tokens of a step reach is not recorded anywhere. Routers are trained to use all of
them equally often, and each token chooses by itself: n tokens that choose k of E each reach
E (1 - (1 - k/E)^n) of them, as the roofline counts. Measured were even routing, which reaches
min(E, n k), and power laws. The even one is read where it reaches as many, n' = E/k (1 - (1 -
k/E)^n) tokens; what more tokens take beyond E/k, from where all are reached, is added. Where only
power laws were measured (A100), the flattest stands for it: it reaches 54 of 128 experts with 16
tokens, uniform choice 82, and leaves some experts with many tokens.

Experts of sizes that were not measured take the ratio of time to least time (weights read, or
FLOPs) of the measured ones that are most like them, at as many tokens per expert.
"""

from dataclasses import dataclass

import numpy as np

from servesim.errors import SettingError
from servesim.hardware.gpu import GPU
from servesim.model.dtypes import DTYPE_BYTES
from servesim.model.mlp import MoE
from validation.fit.kernels import grids
from validation.sources.aiconfigurator import Table
from validation.sources.tables import Array

MATRICES = 3  # gate, up and down of an expert
PEAKS = {"nvfp4": "fp4", "fp8_block": "fp8"}
BYTES = {"fp8_block": 1.0}  # beside DTYPE_BYTES
# of what makes experts alike: a factor in the size of one counts as much as one in their number
FARTHEST = 4.0  # in either; beyond that nothing is alike


@dataclass(frozen=True)
class Experts:
    """Sizes of a layer's routed experts on one rank.

    Attributes:
        hidden: of the model.
        width: of an expert, on all ranks.
        chosen: by a token.
        number: of them.
        tp: ranks that share each by its width.
    """

    hidden: int
    width: int
    chosen: int
    number: int
    tp: int

    @classmethod
    def of(cls, moe: MoE, hidden: int, tp: int) -> "Experts":
        """Those of a model's layer."""
        return cls(hidden, moe.intermediate_size, moe.experts_per_token, moe.num_experts, tp)

    @property
    def parameters(self) -> float:
        """Of one expert on a rank."""
        return MATRICES * self.hidden * self.width / self.tp

    def reached(self, tokens: Array) -> Array:
        """How many experts so many tokens reach, choosing uniformly."""
        return np.asarray(self.number * (1 - (1 - self.chosen / self.number) ** tokens))

    def least_us(self, tokens: Array, dtype: str, gpu: GPU) -> Array:
        """Reading the weights of those that are reached, or the FLOPs, whichever is longer."""
        width = BYTES.get(dtype) or DTYPE_BYTES[dtype]
        num_bytes = width * self.reached(tokens) * self.parameters
        flops = 2 * tokens * self.chosen * self.parameters
        peak = gpu.tflops(PEAKS.get(dtype, dtype))
        read_us = num_bytes / (1e3 * gpu.memory_bandwidth_gb_s)
        return np.maximum(read_us, flops / (1e6 * peak))

    def __str__(self) -> str:
        return (
            f"hidden_size {self.hidden}, inter_size {self.width}, topk {self.chosen}, "
            f"num_experts {self.number}, moe_tp_size {self.tp}"
        )


class Routed:
    """Measured experts of one dtype on one GPU.

    Args:
        table: of the source.
        dtype: of the weights, as the table calls it.
        gpu: that was measured.
    """

    def __init__(self, table: Table, dtype: str, gpu: GPU) -> None:
        self._table, self._dtype, self._gpu = table.where(moe_ep_size=1), dtype, gpu

    def measured(self) -> list[Experts]:
        """All sizes in the table."""
        names = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
        columns = np.stack([self._table.columns[name] for name in names], 1)
        return [Experts(*map(int, row)) for row in np.unique(columns, axis=0)]

    def us(self, experts: Experts, tokens: Array, gpu: GPU) -> Array:
        """One layer's experts for so many tokens on a GPU, of the same arithmetic.

        On another GPU than was measured, what they take beyond their least time is the same.

        Raises:
            SettingError: nothing like these experts was measured.
        """
        return self.us_like(self.donor(experts), experts, tokens, gpu)

    def donor(self, experts: Experts) -> Experts:
        """The measured experts that stand for these: themselves, or those most like them.

        Raises:
            SettingError: nothing like them was measured.
        """
        known = self.measured()
        if experts in known:
            return experts
        nearest = min(known, key=lambda other: _unlike(experts, other))
        if _unlike(experts, nearest) > 2 * np.log(FARTHEST):
            reason = f"was not measured in {self._table.file}, nor anything like it"
            raise SettingError("model", str(experts), reason)
        return nearest

    def us_like(self, donor: Experts, experts: Experts, tokens: Array, gpu: GPU) -> Array:
        """As `us`, from the measured experts `donor`."""
        alike = tokens * experts.chosen / experts.number * donor.number / donor.chosen
        alike = np.maximum(alike, 1.0)  # fewer were not measured
        ratio = self._measured_us(donor, alike) / donor.least_us(alike, self._dtype, self._gpu)
        least, own = (experts.least_us(tokens, self._dtype, card) for card in (self._gpu, gpu))
        return np.asarray(ratio * least + own - least)

    def _measured_us(self, experts: Experts, tokens: Array) -> Array:
        rows = self._table.where(
            hidden_size=experts.hidden,
            inter_size=experts.width,
            topk=experts.chosen,
            num_experts=experts.number,
            moe_tp_size=experts.tp,
        )
        skew = min(float(skew) for skew in rows.columns["skewed"])
        rows = rows.where(skewed=skew)
        measured, first = np.unique(rows.columns["num_tokens"], return_index=True)
        us = grids.never_falling(grids.despiked(measured, rows.us[first]))
        if skew > 0:
            return grids.read(measured, us, tokens)
        all_from = experts.number / experts.chosen
        reaching = experts.reached(tokens) / experts.chosen
        more = np.maximum(tokens, all_from)
        beyond = grids.read(measured, us, more) - grids.read(measured, us, np.array([all_from]))
        return np.asarray(grids.read(measured, us, reaching) + beyond)


def _unlike(one: Experts, other: Experts) -> float:
    """Factors in the size of an expert and in their number; a rank's share like a smaller one."""
    size = abs(np.log(one.parameters / other.parameters))
    return float(size + abs(np.log(one.number / other.number)))
