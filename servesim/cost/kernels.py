"""Step time from tables of measured kernels, for one model on one GPU and one engine.

A value whose fields are its YAML (conf/cost), as `python -m validation.fit` writes it. All tables
are microseconds of the whole model on one rank, summed over layers. Which tables there are, how
they are read between and beyond their knots: servesim/cost/kernel_tables.py. How they add up to a
step: servesim/cost/kernel_timer.py.

    fitted_on: {model, gpu, tp, dtype, kv_dtype, engine}
    source: {repository, commit, licence, files, engine_version, fitted_at, ...}
    fit_range: {axis: [smallest, largest], ...}  # axes of servesim/cost/fit_range.py
    held_out_error: {step: {median, p90, worst, ...}, ...}
    tables: {dense, head, decode_attention, prefill_attention, mixed_attention, mixed, uneven,
             all_reduce, moe}
    graphs: {sizes: [...]}
    host: {us, us_per_seq, us_per_token, exposed_us, eager_us, launch_us_per_layer}
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from servesim import checks
from servesim.cost import kernel_tables
from servesim.cost.fit_range import FitRange
from servesim.cost.kernel_ranks import RankTimer
from servesim.cost.kernel_timer import Host, KernelTimer
from servesim.cost.measured_on import MeasuredOn, require
from servesim.deployment import Deployment
from servesim.errors import SettingError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(MeasuredOn):
    """Kernel tables that hold for one deployment.

    Attributes, beside those of `MeasuredOn`:
        tables: see servesim/cost/kernel_tables.py.
        graphs: `sizes`, the captured CUDA-graph token counts, increasing; empty for eager.
        host: see `Host` in servesim/cost/kernel_timer.py; what is left out is zero.
        all_reduce_share: what an all-reduce takes in the engine, as a share of what it takes alone
            in `tables`: it may overlap with other kernels, or be fused with them.
    """

    KIND = "kernel tables of"

    tables: Mapping[str, Any]
    graphs: Mapping[str, Any]
    host: Mapping[str, Any]
    all_reduce_share: float = 1.0

    def __post_init__(self) -> None:
        MeasuredOn.__post_init__(self)  # slots rule out super() without arguments
        checks.not_negative("all_reduce_share", self.all_reduce_share)
        kernel_tables.parse(self.tables)
        _sizes(self.graphs)
        _host(self.host)

    def bind(self, deployment: Deployment) -> KernelTimer:
        """The timer for `deployment`.

        Raises:
            CostMismatchError: it differs from what was measured and `allow_mismatch` is false.
            SettingError: the model has routed experts and the tables have none, or vice versa; or
            the tables have no exchange of tokens among so many data-parallel ranks.
        """
        self.refuse_others(deployment)
        tables = kernel_tables.parse(self.tables)
        routed = deployment.model.expected_active_experts(1) > 0
        if routed != (tables.moe is not None):
            reason = "must hold a table" if routed else "must be null"
            has = "has" if routed else "has no"
            raise SettingError(
                "tables.moe", self.tables["moe"], f"{reason}: the model {has} routed experts"
            )
        dp, known = deployment.dp, (1, *tables.exchange)
        if dp not in known:
            nearest_dp = min(known, key=lambda ranks: abs(ranks - dp))
            reason = "the tables have no exchange among so many ranks (tables.exchange)"
            raise SettingError("dp", dp, f"{reason}; nearest: {nearest_dp}")
        if tables.all_reduce is not None:
            tables = replace(tables, all_reduce=tables.all_reduce.scaled(self.all_reduce_share))
        ranges = FitRange(self.fit_range)
        kind = KernelTimer if deployment.dp == 1 else RankTimer
        return kind(tables, _host(self.host), _sizes(self.graphs), ranges, deployment)


def _sizes(graphs: Mapping[str, Any]) -> tuple[int, ...]:
    require("graphs", graphs, ("sizes",))
    for key in graphs:
        if key != "sizes":
            raise SettingError(f"graphs.{key}", graphs[key], f"is unknown{nearest(key, ['sizes'])}")
    sizes = graphs["sizes"]
    if not isinstance(sizes, list | tuple):
        raise SettingError("graphs.sizes", sizes, "must be a list of token counts")
    for size in sizes:
        checks.whole("graphs.sizes", size, at_least=1)
    if any(b <= a for a, b in pairwise(sizes)):
        raise SettingError("graphs.sizes", list(sizes), "must increase")
    return tuple(sizes)


def _host(tree: Mapping[str, Any]) -> Host:
    known = tuple(field.name for field in fields(Host))
    if not isinstance(tree, Mapping):
        raise SettingError("host", tree, f"must be a mapping with {', '.join(known)}")
    for key, value in tree.items():
        if key not in known:
            raise SettingError(f"host.{key}", value, f"is unknown{nearest(key, known)}")
        checks.not_negative(f"host.{key}", value)
    return Host(**{key: float(value) for key, value in tree.items()})
