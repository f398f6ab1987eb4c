"""The files of a run directory: what plots and reports read."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from servesim.app.result import Result
from servesim.app.timeline import write_timeline
from servesim.errors import OutputError

CONFIG, SUMMARY, RUN = "config.yaml", "summary.json", "run.json"
REQUESTS, STEPS, ERROR = "requests.parquet", "steps.parquet", "error.txt"
TIMELINE = "timeline.json"


RUN_FILES = (CONFIG, SUMMARY, RUN, REQUESTS, STEPS, TIMELINE, ERROR)
_INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def to_json(content: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """A row, or a list of rows, as strict JSON.

    JSON has no word for infinity or NaN: infinity (a rate at which all requests come at once) is
    the string "inf", which `float()` and pandas read back, and NaN is null.
    """
    rows = [content] if isinstance(content, Mapping) else content
    clean = [{key: _strict(value) for key, value in row.items()} for row in rows]
    return json.dumps(clean[0] if isinstance(content, Mapping) else clean, indent=1)


def read_row(path: Path) -> dict[str, Any]:
    """A row that `to_json` wrote, infinities as floats again."""
    row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {k: _INFINITIES.get(v, v) if isinstance(v, str) else v for k, v in row.items()}


def _strict(value: Any) -> Any:
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def write_run(directory: Path, result: Result, cfg: DictConfig, run: Mapping[str, Any]) -> None:
    """Write config.yaml, requests.parquet and what was asked for, beside `write_row`'s files.

    That is steps.parquet with `output.steps` and timeline.json with `output.timeline`.

    Raises:
        OutputError: naming the directory and the system's reason.
    """
    write_row(directory, result, run)
    try:
        (directory / CONFIG).write_text(OmegaConf.to_yaml(cfg, resolve=True), encoding="utf-8")
        result.requests.to_parquet(directory / REQUESTS, index=False)
        if cfg.output.steps:
            result.steps.to_parquet(directory / STEPS, index=False)
        if cfg.output.timeline:
            write_timeline(directory / TIMELINE, result.record)
    except OSError as error:
        raise unwritable(str(directory), error) from error


def write_row(directory: Path, result: Result, run: Mapping[str, Any]) -> None:
    """Write summary.json and run.json: what a row of a sweep is made of.

    Raises:
        OutputError: naming the directory and the system's reason.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SUMMARY).write_text(to_json(result.summary) + "\n", encoding="utf-8")
        extra = {"notes": list(result.notes), "warnings": list(result.warnings)}
        (directory / RUN).write_text(to_json({**run, **extra}) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(str(directory), error) from error


def unwritable(directory: str, error: OSError) -> OutputError:
    """The output error for what the system said."""
    return OutputError(f"cannot write to output directory {directory}: {error.strerror or error}")
