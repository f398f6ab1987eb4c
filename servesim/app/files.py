"""The files of a run directory: what plots and reports read."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from servesim.app.result import Result
from servesim.errors import OutputError

CONFIG, SUMMARY, RUN = "config.yaml", "summary.json", "run.json"
REQUESTS, STEPS, ERROR = "requests.parquet", "steps.parquet", "error.txt"


def to_json(row: Mapping[str, Any]) -> str:
    """A row as strict JSON: what is not a number there is null."""
    clean = {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()
    }
    return json.dumps(clean, indent=1)


def write_run(directory: Path, result: Result, cfg: DictConfig, run: Mapping[str, Any]) -> None:
    """Write config.yaml, summary.json, run.json, requests.parquet and, if kept, steps.parquet.

    Raises:
        OutputError: naming the directory and the system's reason.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / CONFIG).write_text(OmegaConf.to_yaml(cfg, resolve=True), encoding="utf-8")
        (directory / SUMMARY).write_text(to_json(result.summary) + "\n", encoding="utf-8")
        extra = {"notes": list(result.notes), "warnings": list(result.warnings)}
        (directory / RUN).write_text(to_json({**run, **extra}) + "\n", encoding="utf-8")
        result.requests.to_parquet(directory / REQUESTS, index=False)
        if result.record.steps:
            result.steps.to_parquet(directory / STEPS, index=False)
    except OSError as error:
        raise unwritable(str(directory), error) from error


def unwritable(directory: str, error: OSError) -> OutputError:
    """The output error for what the system said."""
    return OutputError(f"cannot write to output directory {directory}: {error.strerror or error}")
