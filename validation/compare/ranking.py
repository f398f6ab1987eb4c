"""Which of two set-ups is better: do the prediction and the measurement agree?

Two cases are a pair where they are equal in every setting but one. Of each figure that both have,
the measured change and the predicted change are each up, down or, below the noise, a tie.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from validation.compare.grouping import scored

Row = dict[str, Any]

NOISE = 0.03  # one run per configuration: what is closer than this is a tie
AGREE, REVERSED, ONE_TIE = "agree", "reversed", "tie on one side"
FIGURE = ("source", "metric", "statistic")
COLUMNS = (
    *("source", "metric", "statistic", "setting", "a", "b", "case_a", "case_b"),
    *("measured_change", "predicted_change", "measured", "predicted", "verdict"),
)


def pairs(rows: pd.DataFrame, settings: Sequence[str], noise: float = NOISE) -> pd.DataFrame:
    """One line per pair of cases and figure; columns `COLUMNS`.

    Args:
        rows: lines of rows.csv.
        settings: the columns that make up a case's setting.
        noise: a change of less than this share is a tie.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in scored(rows).to_dict("records"):
        if row["measured"] > 0 and row["predicted"] > 0:
            figure = tuple(str(row[name]) for name in FIGURE)
            groups.setdefault(figure, []).append({str(name): row[name] for name in row})
    lines = []
    for figure, group in sorted(groups.items()):
        for setting in settings:
            for a, b in _neighbours(group, setting, settings):
                changes = [b[kind] / a[kind] - 1 for kind in ("measured", "predicted")]
                signs = [_sign(change, noise) for change in changes]
                line = (*figure, setting, a[setting], b[setting], a["case"], b["case"])
                lines.append((*line, *changes, *signs, _verdict(*signs)))
    return pd.DataFrame(lines, columns=list(COLUMNS))


def summary(found: pd.DataFrame, by: Sequence[str] = ("metric", "setting")) -> pd.DataFrame:
    """By group: pairs, those of which the measured change exceeds the noise, and the verdicts.

    `order` is the share with the same sign among pairs in which neither side is a tie.
    """
    lines = []
    for key, group in found.groupby(list(by), sort=True):
        counts = group["verdict"].value_counts()
        agree, back = int(counts.get(AGREE, 0)), int(counts.get(REVERSED, 0))
        both = group[(group["measured"] != "tie") & (group["predicted"] != "tie")]
        same = (both["measured"] == both["predicted"]).mean() if len(both) else float("nan")
        lines.append(
            {
                **dict(zip(by, key, strict=True)),
                "pairs": len(group),
                "distinct": int((group["measured"] != "tie").sum()),
                "agree": agree / len(group),
                "reversed": back / len(group),
                "order": float(same),
            }
        )
    return pd.DataFrame(lines, columns=[*by, "pairs", "distinct", "agree", "reversed", "order"])


def _neighbours(
    rows: Sequence[Row], setting: str, settings: Sequence[str]
) -> Iterator[tuple[Row, Row]]:
    """Pairs of rows that differ in `setting` and in nothing else."""
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        others = tuple(str(row[name]) for name in settings if name != setting)
        alike.setdefault(others, []).append(row)
    for together in alike.values():
        for a, b in combinations(together, 2):
            if str(a[setting]) != str(b[setting]):
                yield a, b


def _sign(change: float, noise: float) -> str:
    if abs(change) < noise:
        return "tie"
    return "up" if change > 0 else "down"


def _verdict(measured: str, predicted: str) -> str:
    if measured == predicted:
        return AGREE
    return ONE_TIE if "tie" in (measured, predicted) else REVERSED
