"""Rows of predictions gathered into groups: how wrong, how often inside the interval, worst case.

A row is a mapping (a line of rows.csv) with at least `metric`, `error`, `case`, `flags`; rows
without an error (failed, or a figure that the run does not have) are left out.
"""

from collections.abc import Sequence

import pandas as pd

from validation.compare.errors import spread

MEASURES = ("n", "median", "p90", "mean_signed", "worst")


def scored(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that have an error."""
    has_error: pd.Series[bool] = pd.to_numeric(rows["error"], errors="coerce").notna()
    return rows.loc[has_error]


def grouped(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """One line per group, in the order of the keys.

    Columns: `by`, n, median and p90 of |error|, mean_signed, worst (|error|), worst_case and its
    worst_flags, and coverage: the share of measurements inside the prediction's interval, of
    those rows that have one, or NaN.
    """
    lines = []
    for key, group in scored(rows).groupby(list(by), sort=True, dropna=False):
        worst = group.iloc[int(group["error"].astype(float).abs().to_numpy().argmax())]
        lines.append(
            {
                **dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)),
                **spread(group["error"].astype(float).tolist()),
                "worst_case": worst["case"],
                "worst_flags": worst["flags"],
                "coverage": coverage(group),
            }
        )
    return pd.DataFrame(lines, columns=[*by, *MEASURES, "worst_case", "worst_flags", "coverage"])


def coverage(rows: pd.DataFrame) -> float:
    """Share of the rows with an interval (`low`, `high`) whose measurement lies inside it."""
    low, high = (pd.to_numeric(rows[end], errors="coerce") for end in ("low", "high"))
    known = low.notna() & high.notna()
    if not known.any():
        return float("nan")
    measured = rows["measured"].astype(float)
    return float(((low <= measured) & (measured <= high))[known].mean())
