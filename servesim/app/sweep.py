"""A sweep's runs side by side: one row each in rows.csv, and a table.

Rows are read back from the run directories, so that it makes no difference which launcher ran
them, and in which process. What an earlier sweep left in the same directory is no row of this.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from servesim.app.files import ERROR, RUN, RUN_FILES, SUMMARY, read_row

ROWS = "rows.csv"
JOB = "job"  # entry of run.json: the run's number in its sweep, null outside one
_HYDRA_FILES = (".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml")
_NAMED_RUNS = 5
# column → header, factor to the header's unit
_SHOWN = {
    "ttft_p50_s": ("TTFT p50\ns", 1.0),
    "ttft_p99_s": ("TTFT p99\ns", 1.0),
    "tpot_mean_s": ("TPOT\nms", 1e3),
    "e2e_p99_s": ("E2E p99\ns", 1.0),
    "goodput_rps": ("goodput\nrequests/s", 1.0),
    "slo_attainment": ("within\nSLO, %", 100.0),
}


class SweepStart(Callback):
    """Notes where Hydra puts a sweep, and what an earlier one left there.

    Hydra makes its callbacks itself and swallows what they raise, so class attributes are the
    only way for these to reach the command that has to set the exit code.
    """

    directory: ClassVar[Path | None] = None
    earlier: ClassVar[dict[Path, int]] = {}
    as_json: ClassVar[bool] = False

    @classmethod
    def forget(cls) -> None:
        """Before a command that may or may not be a sweep."""
        cls.directory, cls.earlier, cls.as_json = None, {}, False

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called once, before the first run."""
        del kwargs
        kind = type(self)
        kind.directory = Path(config.hydra.sweep.dir).absolute()
        kind.as_json = config.output.format == "json"
        kind.earlier = run_files(kind.directory)


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A finished run of a sweep: its directory's name, what was overridden, its summary."""

    name: str
    settings: dict[str, str]
    summary: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """One flat row; where a setting and a column share a name it is the summary's."""
        return {"run": self.name, **self.settings, **self.summary}


def run_files(directory: Path) -> dict[Path, int]:
    """The files of a sweep's runs, with the times at which they were written (ns)."""
    names = (*RUN_FILES, *_HYDRA_FILES)
    folders = [folder for folder in _folders(directory) if _of_a_sweep(folder)]
    paths = [folder / name for folder in folders for name in names]
    return {path: path.stat().st_mtime_ns for path in paths if path.is_file()}


def clear(directory: Path, earlier: Mapping[Path, int]) -> bool:
    """Remove what is left of an earlier sweep; whether the new one has left anything.

    Called after the new sweep, which has replaced some of the files: one that was refused before
    its first run must not cost the results that are there. Removes files of ours, unchanged
    since, and folders that are empty then.
    """
    now = run_files(directory)
    stale = [path for path, written in earlier.items() if now.get(path) == written]
    if len(stale) == len(now):
        return False
    (directory / ROWS).unlink(missing_ok=True)
    for path in stale:
        path.unlink()
    # deepest first, so that a run's folder comes after its .hydra
    for folder in sorted({path.parent for path in stale}, key=lambda f: -len(f.parts)):
        if not any(folder.iterdir()):
            folder.rmdir()
    return True


def read_runs(directory: Path) -> list[SweepRun]:
    """The finished runs of a sweep."""
    runs = []
    for path in _folders(directory):
        if _of_a_sweep(path) and (path / SUMMARY).is_file():
            overrides = read_row(path / RUN)["overrides"]
            settings = dict(o.lstrip("+").split("=", 1) for o in overrides if "=" in o)
            runs.append(SweepRun(path.name, settings, read_row(path / SUMMARY)))
    return runs


def read_errors(directory: Path, num_finished: int) -> list[str]:
    """A line per reason for which runs failed, with how many it were."""
    failed: dict[str, list[str]] = {}
    for path in _folders(directory):
        if (path / ERROR).is_file():
            reason = (path / ERROR).read_text(encoding="utf-8").strip()
            failed.setdefault(reason, []).append(path.name)
    total = num_finished + sum(map(len, failed.values()))
    return [f"{_counted(names, total)}: {reason}" for reason, names in failed.items()]


def write_rows(runs: Sequence[SweepRun], directory: Path) -> Path:
    """One row per run into rows.csv; returns its path."""
    path = directory / ROWS
    pd.DataFrame([run.row for run in runs]).to_csv(path, index=False)
    return path


def print_rows(runs: Sequence[SweepRun], console: Console) -> None:
    """What differs between the runs, and the columns that are usually compared."""
    settings = dict.fromkeys(name for run in runs for name in run.settings)
    varied = [s for s in settings if len({run.settings.get(s) for run in runs}) > 1]
    shown = [c for c in _SHOWN if any(c in run.summary for run in runs)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in varied:
        table.add_column(name.rpartition("/")[2].replace(".", ".\n"), no_wrap=True)
    for column in shown:
        table.add_column(_SHOWN[column][0], justify="right", no_wrap=True)
    for run in runs:
        cells = [_cell(run.summary.get(column), _SHOWN[column][1]) for column in shown]
        table.add_row(*(run.settings.get(name, "-") for name in varied), *cells)
    console.print(table)


def _cell(value: Any, factor: float) -> str:
    if value is None:
        return "-"
    scaled = value * factor
    return f"{scaled:.3f}" if abs(scaled) < 10 else f"{scaled:,.1f}"


def _counted(names: Sequence[str], total: int) -> str:
    """Which runs: `run 3`, `2 of 4 runs failed (0, 2)` or `60 of 60 runs failed`."""
    if len(names) == 1 and total > 1:
        return f"run {names[0]}"
    named = f" ({', '.join(names)})" if len(names) < total and len(names) <= _NAMED_RUNS else ""
    return f"{len(names)} of {total} runs failed{named}"


def _of_a_sweep(folder: Path) -> bool:
    """Whether a run of a sweep left its files here; a single run's are nobody else's to take."""
    if (folder / ERROR).is_file():
        return True
    if not (folder / RUN).is_file():
        return False
    try:
        return read_row(folder / RUN).get(JOB) is not None
    except (ValueError, AttributeError):  # somebody else's run.json
        return False


def _folders(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        folders = (path for path in directory.iterdir() if path.is_dir())
        yield from sorted(folders, key=_number)


def _number(path: Path) -> tuple[int, str]:
    return (int(path.name), "") if path.name.isdigit() else (-1, path.name)
