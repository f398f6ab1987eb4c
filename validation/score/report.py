"""The score on the terminal and in files."""

from pathlib import Path

import pandas as pd
from rich.console import Console

from servesim.errors import OutputError
from validation.compare.figures import error_by_load, predicted_against_measured
from validation.compare.grouping import MEASURES
from validation.compare.markdown import markdown, rich_table
from validation.score.rows import FAILED, NOT_COVERED, WHOLE_RUN
from validation.score.summary import FIGURE, GROUPINGS, Score, long_groups

ROWS, GROUPS, RANKING, REPORT = "rows.csv", "groups.csv", "ranking.csv", "score.md"
_KNEE = ("source", "statistic", "congested", "n", "queued", "right_side", "missed", "invented")
_RANKS = ("metric", "setting", "pairs", "distinct", "agree", "reversed", "order")
_ON_SCREEN = ("all", "with and without enough memory")
_WORST = ("worst_case", "worst_flags")  # too wide for a terminal


def print_score(score: Score, console: Console) -> None:
    """Errors by source and metric, the knee, the ranking, and what could not be scored."""
    for title in _ON_SCREEN:
        narrow = [name for name in _columns(score, title) if name not in _WORST]
        console.print(rich_table(_title(title), score.groups[title], narrow), "")
    worst = score.groups["all"][[*FIGURE, "worst", *_WORST]]
    for source, metric, statistic, error, case, flags in worst.itertuples(index=False):
        figure = f"{source} {metric} {statistic}: worst {error:.1%} in {case}"
        console.print(f"- {figure} ({flags})", highlight=False, markup=False, soft_wrap=True)
    console.print()
    if len(score.knee):
        console.print(rich_table("queueing for memory", score.knee, _KNEE), "")
    if len(score.ranks):
        console.print(
            rich_table("ranking of cases that differ in one setting", score.ranks, _RANKS)
        )
    _print_unscored(score, console)


def _print_unscored(score: Score, console: Console) -> None:
    """By reason: how many cases, and one of them by name."""
    for status in (NOT_COVERED, FAILED):
        listed = score.cases(status)
        if len(listed):
            console.print(f"\n{len(listed)} cases {status}:", style="bold")
        for reason, cases in listed.groupby("reason", sort=True)["case"]:
            line = f"- {len(cases)}, e.g. {cases.iloc[0]}: {reason}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def write_score(score: Score, out: Path) -> list[Path]:
    """Rows, groups, ranking, report and figures; the files that were written.

    Raises:
        OutputError: they cannot be.
    """
    plots = {
        "predicted_against_measured.png": predicted_against_measured,
        "error_by_load.png": error_by_load,
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        score.rows.to_csv(out / ROWS, index=False)
        long_groups(score).to_csv(out / GROUPS, index=False)
        score.pairs.to_csv(out / RANKING, index=False)
        whole = score.rows[score.rows["part"] == WHOLE_RUN]
        for name, plot in plots.items():
            plot(whole, out / name)
        (out / REPORT).write_text(report(score, [n for n in plots if (out / n).is_file()]), "utf-8")
    except OSError as error:
        raise OutputError(f"{error.filename or out}: {error.strerror}") from None
    return [
        out / name for name in (ROWS, GROUPS, RANKING, REPORT, *plots) if (out / name).is_file()
    ]


def report(score: Score, figures: list[str]) -> str:
    """The whole score as Markdown."""
    counts = ", ".join(
        f"{number} {status}"
        for status, number in (
            ("scored", score.num_scored),
            (NOT_COVERED, len(score.cases(NOT_COVERED))),
            (FAILED, len(score.cases(FAILED))),
        )
    )
    parts = [f"# Predicted against measured\n\nCases: {counts}.\n"]
    for title, table in score.groups.items():
        parts.append(f"## Errors, {title}\n\n{markdown(table, _columns(score, title))}")
    parts.append(f"## Queueing for memory\n\n{markdown(score.knee, _KNEE)}")
    parts.append(f"## Ranking\n\n{markdown(score.ranks, _RANKS)}")
    parts += [f"![{name}]({name})\n" for name in figures]
    for status in (NOT_COVERED, FAILED):
        if len(score.cases(status)):
            listed = markdown(score.cases(status), ("case", "reason"))
            parts.append(f"## Cases {status}\n\n{listed}")
    return "\n".join(parts)


def _columns(score: Score, title: str) -> tuple[str, ...]:
    table: pd.DataFrame = score.groups[title]
    coverage = ("coverage",) if table["coverage"].notna().any() else ()
    return (*FIGURE, *GROUPINGS[title], *MEASURES, *coverage, *_WORST)


def _title(title: str) -> str:
    return "errors" if title == "all" else f"errors, {title}"
