"""A sweep's runs side by side: one row each in rows.csv, and a table.

Rows are read back from the run directories, so that it makes no difference which launcher ran
them, and in which process.
"""

import json
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from servesim.app.files import ERROR, RUN, SUMMARY

ROWS = "rows.csv"
# column → header, factor to the header's unit
_SHOWN = {
    "ttft_p50_s": ("TTFT p50\ns", 1.0),
    "ttft_p99_s": ("TTFT p99\ns", 1.0),
    "tpot_mean_s": ("TPOT\nms", 1e3),
    "e2e_p99_s": ("E2E p99\ns", 1.0),
    "goodput_rps": ("goodput\nrequests/s", 1.0),
    "slo_attainment": ("within\nSLO, %", 100.0),
}


class SweepDirectory(Callback):
    """Notes where Hydra puts a sweep.

    Hydra makes its callbacks itself and swallows what they raise, so a class attribute is the
    only way for the directory to reach the command that has to set the exit code.
    """

    latest: ClassVar[Path | None] = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called once, before the first run."""
        del kwargs
        type(self).latest = Path(config.hydra.sweep.dir).absolute()


def read_rows(directory: Path) -> pd.DataFrame:
    """One row per finished run of a sweep: what was overridden, then the summary."""
    rows = []
    for path in sorted(directory.glob(f"*/{SUMMARY}"), key=lambda p: _number(p.parent.name)):
        summary = json.loads(path.read_text(encoding="utf-8"))
        run = json.loads((path.parent / RUN).read_text(encoding="utf-8"))
        settings = dict(o.lstrip("+").split("=", 1) for o in run["overrides"] if "=" in o)
        rows.append({"run": path.parent.name, **settings, **summary})
    return pd.DataFrame(rows)


def read_errors(directory: Path) -> list[str]:
    """A line per run that failed."""
    paths = sorted(directory.glob(f"*/{ERROR}"), key=lambda p: _number(p.parent.name))
    return [f"run {p.parent.name}: {p.read_text(encoding='utf-8').strip()}" for p in paths]


def write_rows(directory: Path) -> pd.DataFrame:
    """Gather a sweep's rows into rows.csv."""
    rows = read_rows(directory)
    if len(rows):
        rows.to_csv(directory / ROWS, index=False)
    return rows


def print_rows(rows: pd.DataFrame, console: Console) -> None:
    """What differs between the runs, and the columns that are usually compared."""
    first_metric = list(rows.columns).index("model") if "model" in rows else 1
    settings = [c for c in rows.columns[1:first_metric] if rows[c].nunique(dropna=False) > 1]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in settings:
        table.add_column(name.rpartition("/")[2].replace(".", ".\n"), no_wrap=True)
    shown = [name for name in _SHOWN if name in rows]
    for name in shown:
        table.add_column(_SHOWN[name][0], justify="right", no_wrap=True)
    for _, row in rows.iterrows():
        cells = [_cell(row[name], _SHOWN[name][1]) for name in shown]
        table.add_row(*(str(row[s]) for s in settings), *cells)
    console.print(table)


def _cell(value: Any, factor: float) -> str:
    if pd.isna(value):
        return "-"
    scaled = value * factor
    return f"{scaled:.3f}" if abs(scaled) < 10 else f"{scaled:,.1f}"


def _number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (-1, name)
