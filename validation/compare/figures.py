"""Predicted against measured, and error against load."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # files only, also where there is no display

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

from validation.compare.grouping import scored

BAND = 0.10  # ± share of the measurement that is shaded
_STYLES = {False: "no", True: "yes"}


def predicted_against_measured(rows: pd.DataFrame, path: Path) -> None:
    """One panel per metric, both axes logarithmic, the band of ±10 % shaded."""
    shown = scored(rows)
    shown = shown[(shown["measured"] > 0) & (shown["predicted"] > 0)]
    if shown.empty:
        return
    grid = sns.FacetGrid(
        _labelled(shown), col="metric", col_wrap=2, height=4, sharex=False, sharey=False
    )
    grid.map_dataframe(
        sns.scatterplot, x="measured", y="predicted", hue="source", style="congested", alpha=0.6
    )
    for axes, metric in zip(grid.axes.flat, grid.col_names, strict=True):
        values = shown.loc[shown["metric"] == metric, ["measured", "predicted"]].to_numpy()
        ends = np.array([values.min() / 1.3, values.max() * 1.3])
        axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color="0.85", zorder=0)
        axes.plot(ends, ends, color="0.5", linewidth=0.8, zorder=1)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    grid.set_titles("{col_name}")
    grid.add_legend()
    _save(grid, path)


def error_by_load(rows: pd.DataFrame, path: Path) -> None:
    """Signed error against requests at a time and against offered KV over what the cache holds."""
    shown = _labelled(scored(rows))
    if shown.empty:
        return
    axes_of = {"at_a_time": "requests at a time", "kv_share": "offered KV / cache"}
    long = shown.melt(
        id_vars=["metric", "source", "congested", "error"],
        value_vars=list(axes_of),
        var_name="load",
        value_name="value",
    )
    long["load"] = long["load"].map(axes_of)
    grid = sns.FacetGrid(long, row="metric", col="load", height=3, aspect=1.4, sharex="col")
    grid.map_dataframe(
        sns.scatterplot, x="value", y="error", hue="source", style="congested", alpha=0.6
    )
    for axes in grid.axes.flat:
        axes.axhspan(-BAND, BAND, color="0.85", zorder=0)
        axes.set(xscale="log", ylim=(-1.05, min(3.0, max(0.5, float(long["error"].max()) * 1.05))))
    for axes in grid.axes[:, 1]:
        axes.axvline(1, color="0.5", linewidth=0.8)
    grid.set_titles("{row_name} by {col_name}")
    grid.set_axis_labels("", "(predicted − measured) / measured")
    grid.add_legend()
    _save(grid, path)


def _labelled(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(
        congested=rows["congested"].astype(bool).map(_STYLES),
        error=rows["error"].astype(float),
        measured=rows["measured"].astype(float),
        predicted=rows["predicted"].astype(float),
    )


def _save(grid: sns.FacetGrid, path: Path) -> None:
    grid.figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(grid.figure)
