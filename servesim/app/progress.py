"""A progress bar on the terminal: simulated time, requests done, speed."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from servesim.engine.observer import Observer
from servesim.engine.observer import Progress as RunProgress
from servesim.units import ps_to_seconds

MODES = ("auto", "always", "never")


def wanted(mode: str) -> bool:
    """Whether to show a bar: `auto` does on a terminal."""
    return mode == "always" or (mode == "auto" and sys.stderr.isatty())


@contextmanager
def progress_bar(total_requests: int, shown: bool) -> Iterator[Observer | None]:
    """An observer that moves a bar on standard error, or None."""
    if not shown:
        yield None
        return
    console = Console(stderr=True, force_terminal=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(
            "requests, {task.fields[simulated]:.1f} s simulated, {task.fields[speed]:.0f}/s"
        ),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total_requests, simulated=0.0, speed=0.0)
        started = time.perf_counter()

        def observe(state: RunProgress) -> None:
            elapsed = max(time.perf_counter() - started, 1e-9)
            bar.update(
                task,
                completed=state.requests_done,
                simulated=ps_to_seconds(state.now_ps),
                speed=state.requests_done / elapsed,
            )

        yield observe
