"""`servesim`: the Hydra application that runs a simulation or a sweep."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from servesim.app import objective
from servesim.app.compose import drop_empty_data_dir
from servesim.app.files import to_json, unwritable
from servesim.app.help import help_text
from servesim.app.hydra_errors import USER_ERRORS, reworded
from servesim.app.job import in_sweep, note_failure, run_job, short
from servesim.app.paths import conf_dir
from servesim.app.sweep import SweepStart, clear, print_rows, read_errors, read_runs, write_rows

_FULL_ERROR = "HYDRA_FULL_ERROR"
_MULTIRUN = ("-m", "--multirun")
_HELP = ("-h", "--help")
_INTERRUPTED = 128 + signal.SIGINT


class Finished(NamedTuple):
    """How a command ended.

    Attributes:
        code: 0; 2 after one line on standard error per mistake; 130 when interrupted.
        rows: the table of the runs that a sweep finished; None without any.
    """

    code: int
    rows: Path | None


def main(arguments: Sequence[str]) -> int:
    """Run the application; 0, or 2 after one line on standard error per mistake."""
    return carry_out(arguments).code


def carry_out(arguments: Sequence[str], show_rows: bool = True) -> Finished:
    """Run the application, and say where the rows of a sweep are.

    Args:
        arguments: of the command line.
        show_rows: print a sweep's rows; one who ranks them need not.
    """
    errors: list[str] = []
    rows, interrupted = None, False
    SweepStart.forget()
    drop_empty_data_dir()
    with _as_hydra_wants(arguments) as full_errors:
        try:
            if any(word in _HELP for word in arguments):
                overrides = [word for word in arguments if not word.startswith("-")]
                print(help_text(overrides), flush=True)
            else:
                _application(errors)()
        except BrokenPipeError:
            _drop_output()
        except KeyboardInterrupt:
            interrupted = True
        except USER_ERRORS as error:
            message = reworded(error, arguments)
            if message is None or full_errors:
                raise
            errors.append(str(message))
    if SweepStart.directory is not None:
        rows = _finish_sweep(SweepStart.directory, errors, show_rows)
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    if interrupted:
        print(
            "interrupted" + (f"; finished runs are kept: {short(rows)}" if rows else ""),
            file=sys.stderr,
        )
        return Finished(_INTERRUPTED, rows)
    return Finished(2 if errors else 0, rows)


@contextmanager
def _as_hydra_wants(arguments: Sequence[str]) -> Iterator[bool]:
    """Arguments where Hydra reads them, and errors raised: else it prints and exits by itself.

    Yields whether the user wants full errors. All is as it was afterwards.
    """
    argv, full = sys.argv, os.environ.get(_FULL_ERROR)
    flags = [word for word in arguments if word in _MULTIRUN]
    # Hydra takes `-m` only before the overrides; people write it anywhere
    sys.argv = ["servesim", *flags[:1], *(a for a in arguments if a not in _MULTIRUN)]
    os.environ[_FULL_ERROR] = "1"
    try:
        yield full == "1"
    finally:
        sys.argv = argv
        if full is None:
            del os.environ[_FULL_ERROR]
        else:
            os.environ[_FULL_ERROR] = full


def _application(errors: list[str]) -> Any:
    @hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
    def application(cfg: DictConfig) -> float:
        try:
            return run_job(cfg)
        except BrokenPipeError:
            _drop_output()
            return objective.NONE
        except USER_ERRORS as error:
            message = reworded(error, HydraConfig.get().overrides.task)
            if message is None:
                raise
            if in_sweep():
                note_failure(str(message))
            else:
                errors.append(str(message))
            return objective.NONE

    return application


def _finish_sweep(directory: Path, errors: list[str], show_rows: bool) -> Path | None:
    """Gather what the runs wrote; adds a line per reason for which runs failed."""
    rows = None
    try:
        ran = clear(directory, SweepStart.earlier)
        runs = read_runs(directory) if ran else []
        errors += read_errors(directory, len(runs)) if ran else []
        if runs:
            rows = write_rows(runs, directory)
    except OSError as error:
        errors.append(str(unwritable(str(directory), error)))
        return None
    try:
        if SweepStart.as_json:
            print(to_json([run.row for run in runs]), flush=True)
        elif rows is not None:
            if show_rows:
                print_rows(runs, Console())
            print(f"{len(runs)} runs: {short(rows)}", flush=True)
    except BrokenPipeError:
        _drop_output()
    return rows


def _drop_output() -> None:
    """The reader of our output has gone, as in `servesim ... | head`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
