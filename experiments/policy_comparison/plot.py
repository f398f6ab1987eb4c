"""The figure: latency and goodput against load, a line per policy, bands over seeds."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from experiments.figures import TEXT_WIDTH_IN, save, use_style

# column, label, factor to the label's unit, logarithmic axis
_PANELS = (
    ("ttft_p50_s", "TTFT p50 (s)", 1.0, True),
    ("ttft_p99_s", "TTFT p99 (s)", 1.0, True),
    ("tpot_mean_s", "TPOT mean (ms)", 1e3, False),
    ("goodput_rps", "goodput (requests/s)", 1.0, False),
)


def plot(rows: pd.DataFrame, path: Path) -> list[Path]:
    """Draw the rows of a sweep; writes PNG and PDF and returns their paths.

    Runs without a finite rate have no place on the axis; where there are no others, nothing is
    written.
    """
    rows = rows[np.isfinite(rows["rate_rps"].astype("float64"))]
    if rows.empty:
        return []
    use_style()
    figure, axes = plt.subplots(1, len(_PANELS), figsize=(TEXT_WIDTH_IN, 1.9), layout="constrained")
    orders = sorted(rows["order"].unique(), key=lambda order: (order != "fcfs", order))
    for axis, (column, label, factor, logarithmic) in zip(axes, _PANELS, strict=True):
        _panel(axis, rows.assign(value=rows[column] * factor), orders)
        axis.set(xlabel="load (requests/s)", ylabel=label)
        if logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    # goodput cannot exceed the load: the diagonal is what a replica that keeps up reaches
    loads = sorted(rows["rate_rps"].unique())
    axes[-1].plot(loads, loads, color="0.6", linestyle=":", linewidth=0.8, zorder=0)
    handles, labels = axes[0].get_legend_handles_labels()
    names = [label.replace("_", " ") for label in labels]
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    sns.despine(figure)
    return save(figure, path)


def _panel(axis: Axes, data: pd.DataFrame, orders: list[str]) -> None:
    """One quantity against load."""
    sns.lineplot(
        data,
        x="rate_rps",
        y="value",
        hue="order",
        hue_order=orders,
        style="order",
        style_order=orders,
        markers=True,
        dashes=False,
        errorbar=("pi", 100),
        err_kws={"alpha": 0.15, "linewidth": 0},
        ax=axis,
    )
    legend = axis.get_legend()  # one for all panels is drawn above them
    if legend is not None:
        legend.remove()
