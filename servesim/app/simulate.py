"""`servesim`: the Hydra application that runs a simulation or a sweep."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from servesim import checks
from servesim.app import progress
from servesim.app.files import ERROR, to_json, unwritable, write_run
from servesim.app.hydra_errors import reworded
from servesim.app.paths import conf_dir
from servesim.app.provenance import versions
from servesim.app.result import Result
from servesim.app.run import execute
from servesim.app.setup import build
from servesim.app.sweep import SweepDirectory, print_rows, read_errors, write_rows
from servesim.app.table import print_result
from servesim.errors import UnknownChoiceError

FORMATS = ("table", "json")
_FAILED = float("nan")


def main(arguments: Sequence[str]) -> int:
    """Run the application; 0, or 2 after one line on standard error per mistake."""
    errors: list[str] = []
    SweepDirectory.latest = None
    # Hydra prints and exits by itself unless told to raise; the user's own wish is kept
    full = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["servesim", *_flag_first(arguments)]
    try:
        _application(errors)()
    except Exception as error:
        message = reworded(error, arguments)
        if message is None or full == "1":
            raise
        errors.append(str(message))
    finally:
        if full is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
    if SweepDirectory.latest is not None:
        errors += _finish_sweep(SweepDirectory.latest)
    for line in errors:
        print(f"error: {line}", file=sys.stderr)
    return 2 if errors else 0


def _flag_first(arguments: Sequence[str]) -> list[str]:
    """Hydra takes `-m` only before the overrides; people write it anywhere."""
    flags = [a for a in arguments if a in ("-m", "--multirun")]
    return flags[:1] + [a for a in arguments if a not in ("-m", "--multirun")]


def _application(errors: list[str]) -> Any:
    @hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")
    def application(cfg: DictConfig) -> float:
        try:
            return _run(cfg)
        except BrokenPipeError:  # the reader of our output has gone, as in `servesim ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _FAILED
        except Exception as error:
            message = reworded(error, HydraConfig.get().overrides.task)
            if message is None:
                raise
            if _in_sweep():
                _note_failure(str(message))
            else:
                errors.append(str(message))
            return _FAILED

    return application


def _run(cfg: DictConfig) -> float:
    """One run; returns the objective, for sweepers that optimise."""
    output = cfg.output
    checks.choice("output.format", output.format, FORMATS)
    checks.choice("output.progress", output.progress, progress.MODES)
    job = HydraConfig.get()
    started = time.perf_counter()
    setup = build(cfg, dict(job.runtime.choices))
    load = setup.workload.load(setup.seed)
    alone = not _in_sweep()
    with progress.progress_bar(
        len(load.requests), alone and progress.wanted(output.progress)
    ) as observer:
        result = execute(setup, output.steps, observer, load)
    directory = Path(job.runtime.output_dir)
    if output.files:
        run = {
            **versions(),
            "seed": setup.seed,
            "overrides": list(job.overrides.task),
            "wall_time_s": time.perf_counter() - started,
        }
        write_run(directory, result, cfg, run)
    objective = _objective(result, cfg.objective)
    _show(result, output.format, None if alone else job.job.num)
    if alone and output.files and output.format == "table":
        print(f"files: {_short(directory)}")
    return objective


def _objective(result: Result, name: str) -> float:
    value = result.summary.get(name)
    if name not in result.summary:
        raise UnknownChoiceError("objective", name, result.summary)
    return float(value) if isinstance(value, int | float) else _FAILED


def _show(result: Result, style: str, job_number: int | None) -> None:
    summary = result.summary
    if job_number is not None:
        first, good = summary.get("ttft_p99_s"), summary.get("slo_attainment")
        print(
            f"run {job_number}: {summary['order']}, rate {summary['rate_rps']}, seed "
            f"{summary['seed']}: TTFT p99 {_number(first)} s, within SLO {_number(good)}"
            + (" (overloaded)" if summary.get("overloaded") else ""),
            flush=True,
        )
    elif style == "json":
        print(to_json(summary))
    else:
        print_result(result, Console())


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _in_sweep() -> bool:
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def _note_failure(message: str) -> None:
    """Leave a failed run's reason where the end of the sweep finds it."""
    directory = Path(HydraConfig.get().runtime.output_dir)
    print(f"run {HydraConfig.get().job.num} failed: {message}", file=sys.stderr, flush=True)
    try:
        (directory / ERROR).write_text(message + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(str(directory), error) from error


def _finish_sweep(directory: Path) -> list[str]:
    """Gather what the runs wrote; a line per failed run."""
    try:
        rows = write_rows(directory)
    except OSError as error:
        return [str(unwritable(str(directory), error))]
    if len(rows):
        print_rows(rows, Console())
        print(f"{len(rows)} runs: {_short(directory)}/rows.csv")
    return read_errors(directory)


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
