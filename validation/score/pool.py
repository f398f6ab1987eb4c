"""Scoring many cases at once."""

import os
from collections.abc import Sequence
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from servesim.errors import ServesimError
from validation.cases.case import Case
from validation.score.predict import score_case
from validation.score.rows import FAILED, Row, unscored


def score_all(
    cases: Sequence[Case], folder: Path, overrides: Sequence[str], jobs: int, progress: bool
) -> list[Row]:
    """The rows of all cases, in the order of the cases whichever is done first.

    A case that cannot be simulated has one row that says why; it does not stop the others.

    Args:
        cases: what was measured.
        folder: of their files.
        overrides: settings of servesim, laid over those of each case.
        jobs: processes; with one, nothing is started.
        progress: show a bar on standard error.
    """
    with _executor(jobs) as executor:
        futures = [executor.submit(score_case, case, folder, tuple(overrides)) for case in cases]
        _wait(futures, progress)
    return [row for case, future in zip(cases, futures, strict=True) for row in _rows(case, future)]


def cpus() -> int:
    """CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _executor(jobs: int) -> Executor:
    if jobs == 1:
        return ThreadPoolExecutor(1)
    # a fork would copy the progress bar's thread in mid-step
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def _wait(futures: Sequence[Future[list[Row]]], progress: bool) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not progress) as bar:
        task = bar.add_task("cases", total=len(futures))
        try:
            for _ in as_completed(futures):
                bar.advance(task)
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            raise


def _rows(case: Case, future: Future[list[Row]]) -> list[Row]:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, ServesimError):
        return [unscored(case, FAILED, error.message)]
    # a mistake of ours: named, so that the other cases are not lost
    return [unscored(case, FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")]
