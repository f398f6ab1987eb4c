"""What the rows of a score come to: errors by group, both sides of the knee, ranking."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from validation.compare import ranking
from validation.compare.grouping import MEASURES, grouped, scored
from validation.score.rows import COLUMNS, FAILED, NOT_COVERED, WHOLE_RUN, Row

FIGURE = ("source", "metric", "statistic")
# title → what a figure is further divided by
GROUPINGS = {
    "all": (),
    "with and without enough memory": ("congested",),
    "by GPU": ("hardware",),
    "by engine": ("engine",),
    "by cost": ("cost_kind",),
    "by stage": ("part",),
}
# what two cases must have alike, but for one, to be ranked against each other
SETTINGS = (
    *("engine_release", "hardware", "model", "tp", "dp", "dtype", "kv_dtype", "limits"),
    *("workload", "load", "prompt", "output"),
)
SHOWN = (*MEASURES, "worst_case", "worst_flags")


@dataclass(frozen=True, slots=True)
class Score:
    """All that a score says.

    Attributes:
        rows: one line per measured figure; columns of `rows.COLUMNS`.
        groups: title of `GROUPINGS` → its table.
        knee: both sides of it, by source and statistic of TTFT.
        pairs: of cases that differ in one setting.
        ranks: those by metric and setting.
    """

    rows: pd.DataFrame
    groups: dict[str, pd.DataFrame]
    knee: pd.DataFrame
    pairs: pd.DataFrame
    ranks: pd.DataFrame

    def cases(self, status: str) -> pd.DataFrame:
        """Names and reasons of the cases with this status."""
        return self.rows.loc[self.rows["status"] == status, ["case", "reason"]]

    @property
    def num_scored(self) -> int:
        """Cases that were simulated."""
        unscored = self.rows["status"].isin((FAILED, NOT_COVERED))
        return int(self.rows.loc[~unscored, "case"].nunique())


def score_of(rows: Sequence[Row]) -> Score:
    """Gather the rows of all cases."""
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    whole = table[table["part"] == WHOLE_RUN]
    groups = {
        title: grouped(table if "part" in by else whole, (*FIGURE, *by))
        for title, by in GROUPINGS.items()
        if "part" not in by or len(whole) < len(table[table["part"].notna()])
    }
    found = ranking.pairs(_with_settings(whole), SETTINGS)
    return Score(table, groups, knee(whole), found, ranking.summary(found))


def knee(rows: pd.DataFrame) -> pd.DataFrame:
    """Whether a prediction queues for memory where the measurement does.

    A run queues where its TTFT is more than twice what the simulation says it is with KV for
    everyone. Columns: n, queued (measured), right_side (share in which both or neither queue),
    missed (measured, not predicted) and invented (predicted, not measured).
    """
    ttft = scored(rows)
    ttft = ttft[(ttft["metric"] == "ttft_ms") & ttft["unlimited"].notna()]
    lines = []
    by = ["source", "statistic", "congested"]
    for key, group in ttft.groupby(by, sort=True):
        measured, predicted = (
            group[f"{side}_queued"].astype(bool) for side in ("measured", "predicted")
        )
        lines.append(
            {
                **dict(zip(by, key, strict=True)),
                "n": len(group),
                "queued": int(measured.sum()),
                "right_side": float((measured == predicted).mean()),
                "missed": int((measured & ~predicted).sum()),
                "invented": int((predicted & ~measured).sum()),
            }
        )
    return pd.DataFrame(lines, columns=[*by, "n", "queued", "right_side", "missed", "invented"])


def long_groups(score: Score) -> pd.DataFrame:
    """All groups in one table: `grouping` and the value of what it divides by, in `of`."""
    parts = []
    for title, table in score.groups.items():
        by = GROUPINGS[title]
        of = table[by[0]].astype(str) if by else ""
        parts.append(table.assign(grouping=title, of=of).drop(columns=list(by)))
    columns = ["grouping", "of", *FIGURE, *SHOWN, "coverage"]
    return pd.concat(parts)[columns] if parts else pd.DataFrame(columns=columns)


def _with_settings(rows: pd.DataFrame) -> pd.DataFrame:
    version = rows["engine_version"].fillna("?").astype(str)
    load = rows["concurrency"].where(rows["concurrency"].notna(), rows["rate_rps"])
    return rows.assign(engine_release=rows["engine"].astype(str) + " " + version, load=load)
