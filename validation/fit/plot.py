"""Held-out errors of a fit, drawn."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns

from servesim.errors import OutputError
from validation.fit.result import Fit


def draw(done: Fit, path: Path) -> None:
    """Curves over their measurements, and the distribution of each part's error, as `path`.

    Raises:
        OutputError: the file cannot be written.
    """
    mpl.use("Agg")  # no display on a server
    import matplotlib.pyplot as plt  # after the backend is chosen

    sns.set_theme(style="whitegrid")
    ratios = [1.0] * len(done.curves) + [1.4]
    figure, panels = plt.subplots(
        1, len(ratios), figsize=(5 * sum(ratios), 4.5), width_ratios=ratios, squeeze=False
    )
    for left, curve in zip(panels[0], done.curves, strict=False):
        left.plot(curve.x, curve.measured, ".", label="measured")
        left.plot(curve.x, curve.fitted, label="fitted")
        left.set(xscale="log", yscale="log", xlabel=curve.axis, ylabel=curve.unit)
        left.legend()
    right = panels[0][-1]
    points = pd.concat(
        pd.DataFrame({"part": part.name, "error": 100 * part.error}) for part in done.errors
    )
    sns.boxenplot(points, x="error", y="part", ax=right, showfliers=False)
    right.set(xlabel="held-out error, % (predicted ÷ measured − 1)", ylabel="")
    figure.suptitle(f"{done.tree['fitted_on']['model']} on {done.tree['fitted_on']['gpu']}")
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise OutputError(f"plot={path}: {error.strerror}") from None
    finally:
        plt.close(figure)
