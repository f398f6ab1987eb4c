"""The look that all figures share, and how they are saved."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display is needed, or assumed

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

TEXT_WIDTH_IN = 7.0  # two columns of a paper

_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # text stays text in the PDF, as publishers ask
}


def use_style() -> None:
    """Set seaborn's theme for a paper."""
    sns.set_theme(context="paper", style="ticks", palette="colorblind", rc=_STYLE)


def save(figure: Figure, path: Path) -> list[Path]:
    """Write `path` as PNG and PDF; returns both."""
    written = []
    for suffix in (".png", ".pdf"):
        target = path.with_suffix(suffix)
        figure.savefig(target, dpi=200, bbox_inches="tight")
        written.append(target)
    plt.close(figure)
    return written
