"""The figure: a panel per quantity against load, a line per choice, bands over seeds."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from experiments.compare.comparison import Comparison, Panel
from experiments.figures import TEXT_WIDTH_IN, save, use_style

_LEGEND_COLUMNS = 7


def plot(rows: pd.DataFrame, comparison: Comparison, path: Path) -> list[Path]:
    """Draw the rows of a sweep; writes PNG and PDF and returns their paths.

    Runs without a finite rate have no place on the axis; where there are no others, nothing is
    written.
    """
    rows = rows[np.isfinite(rows["rate_rps"].astype("float64"))]
    if rows.empty:
        return []
    use_style()
    panels, choice = comparison.panels, comparison.choice
    figure, axes = plt.subplots(1, len(panels), figsize=(TEXT_WIDTH_IN, 1.9), layout="constrained")
    choices = sorted(rows[choice].unique(), key=lambda name: (name != comparison.first, name))
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, panel, rows, choice, choices)
    handles, labels = axes[0].get_legend_handles_labels()
    names = [label.replace("_", " ") for label in labels]
    columns = min(len(names), _LEGEND_COLUMNS)
    figure.legend(handles, names, loc="outside upper center", ncols=columns, frameon=False)
    sns.despine(figure)
    return save(figure, path)


def _panel(axis: Axes, panel: Panel, rows: pd.DataFrame, choice: str, choices: list[str]) -> None:
    """One quantity against load."""
    sns.lineplot(
        rows.assign(value=rows[panel.column] * panel.factor),
        x="rate_rps",
        y="value",
        hue=choice,
        hue_order=choices,
        style=choice,
        style_order=choices,
        markers=True,
        dashes=False,
        errorbar=("pi", 100),
        err_kws={"alpha": 0.15, "linewidth": 0},
        ax=axis,
    )
    axis.set(xlabel="load (requests/s)", ylabel=panel.label)
    if panel.logarithmic:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    if panel.column == "goodput_rps":
        # goodput cannot exceed the load: the diagonal is what a replica that keeps up reaches
        loads = sorted(rows["rate_rps"].unique())
        axis.plot(loads, loads, color="0.6", linestyle=":", linewidth=0.8, zorder=0)
    legend = axis.get_legend()  # one for all panels is drawn above them
    if legend is not None:
        legend.remove()
