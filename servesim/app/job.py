"""One run inside Hydra: objects from the configuration, result to files and terminal."""

import sys
import time
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from servesim import checks
from servesim.app import objective, progress
from servesim.app.files import ERROR, TIMELINE, to_json, unwritable, write_row, write_run
from servesim.app.provenance import versions
from servesim.app.result import Result
from servesim.app.run import execute
from servesim.app.setup import build
from servesim.app.sweep import JOB
from servesim.app.table import print_result
from servesim.errors import SettingError
from servesim.units import BYTES_PER_MB

FORMATS = ("table", "json")


def in_sweep() -> bool:
    """Whether Hydra runs several jobs."""
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def run_job(cfg: DictConfig) -> float:
    """One run; returns the objective, for sweepers that optimise."""
    output, job = _checked_output(cfg), HydraConfig.get()
    started = time.perf_counter()
    setup = build(cfg, dict(job.runtime.choices))
    load = setup.workload.load(setup.seed)
    objective.check(cfg.objective, setup, load)
    shows_bar = not in_sweep() and progress.wanted(output.progress)
    with progress.progress_bar(len(load.requests), shows_bar) as observer:
        result = execute(setup, output.steps or output.timeline, observer, load)
    value = objective.value_of(cfg.objective, result.summary)
    run = {
        **versions(),
        "seed": setup.seed,
        JOB: job.job.num if in_sweep() else None,
        "overrides": list(job.overrides.task),
        "wall_time_s": time.perf_counter() - started,
    }
    directory = Path(job.runtime.output_dir)
    if output.files:
        write_run(directory, result, cfg, run)
    elif in_sweep():
        write_row(directory, result, run)
    _show(result, output, directory)
    return value


def note_failure(message: str) -> None:
    """Leave a failed run's reason where the end of the sweep finds it."""
    directory = Path(HydraConfig.get().runtime.output_dir)
    try:
        (directory / ERROR).write_text(message + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(str(directory), error) from error


def short(path: Path) -> str:
    """The path as seen from here, if that is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _checked_output(cfg: DictConfig) -> DictConfig:
    output: DictConfig = cfg.output
    checks.choice("output.format", output.format, FORMATS)
    checks.choice("output.progress", output.progress, progress.MODES)
    checks.flag("output.files", output.files)
    checks.flag("output.steps", output.steps)
    checks.flag("output.timeline", output.timeline)
    if output.timeline and not output.files:
        reason = "is a file, and output.files=false wants none; nearest: output.files=true"
        raise SettingError("output.timeline", output.timeline, reason)
    return output


def _show(result: Result, output: DictConfig, directory: Path) -> None:
    """A run of a sweep gets a line, on standard error where standard output is for JSON."""
    as_json = output.format == "json"
    if in_sweep():
        line = f"run {HydraConfig.get().job.num}: {_in_short(result)}"
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
    elif as_json:
        print(to_json(result.summary))
    else:
        print_result(result, Console())
        if output.files:
            print(f"files: {short(directory)}")
        if output.timeline:
            print(_timeline_in_short(directory / TIMELINE))


def _timeline_in_short(path: Path) -> str:
    size_mb = path.stat().st_size / BYTES_PER_MB
    return f"timeline: {short(path)} ({size_mb:.1f} MB), for https://ui.perfetto.dev"


def _in_short(result: Result) -> str:
    summary = result.summary
    said = [str(summary["scheduler"]), str(summary["order"])]
    if summary["rate_rps"] is not None:
        said.append(f"rate {summary['rate_rps']:g}")
    said.append(f"seed {summary['seed']}")
    for label, column in (("TTFT p99", "ttft_p99_s"), ("within SLO", "slo_attainment")):
        value = summary.get(column)
        if isinstance(value, float):
            said.append(
                f"{label} {value:.1%}" if label == "within SLO" else f"{label} {value:.3f} s"
            )
    return ", ".join(said) + (" (overloaded)" if summary.get("overloaded") else "")
