"""Held-out errors of a fit, drawn."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns

from servesim.errors import OutputError
from validation.fit.build import Fit


def draw(done: Fit, path: Path) -> None:
    """Dense curve over its measurements, and the distribution of each part's error, as `path`.

    Raises:
        OutputError: the file cannot be written.
    """
    mpl.use("Agg")  # no display on a server
    import matplotlib.pyplot as plt  # after the backend is chosen

    sns.set_theme(style="whitegrid")
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), width_ratios=(1, 1.4))
    profile = done.profile
    fitted = [done.timer.dense_us(int(t)) for t in profile.tokens]
    left.plot(profile.tokens, profile.layer_us, ".", label="measured")
    left.plot(profile.tokens, fitted, label="fitted")
    left.set(xscale="log", yscale="log", xlabel="tokens", ylabel="one layer w/o attention, µs")
    left.legend()
    points = pd.concat(
        pd.DataFrame({"part": part.name, "error": 100 * np.asarray(part.error)})
        for part in done.errors
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
