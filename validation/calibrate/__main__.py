"""`python -m validation.calibrate cases=DIR gpu=h100_sxm engine=vllm [option=value ...]`.

Tunes host time and front-end delays of one GPU and engine on measured cases.
"""

import datetime
import fnmatch
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from servesim.app.paths import conf_dir
from servesim.errors import MissingDataError, ServesimError, SettingError
from validation.calibrate import book, options
from validation.calibrate.parameters import COST_FIELDS, Parameter, Values, chosen, part
from validation.calibrate.runs import Residual, Runs, shortened
from validation.calibrate.search import search
from validation.cases.case import Case
from validation.cases.format import read_case
from validation.score.engines import profile_for
from validation.score.names import option_of
from validation.score.pool import cpus
from validation.score.rows import DOUBTFUL
from validation.score.settings import settings_of

USAGE = """\
usage: python -m validation.calibrate cases=DIR gpu=GPU engine=ENGINE [option=value ...]

  cases=DIR       folder of cases (validation/cases/README.md)
  gpu=GPU         option of conf/hardware, e.g. h100_sxm
  engine=ENGINE   vllm; below 0.8 vllm_v0 on one rank, vllm_v0_tp on several; sglang or trtllm
  free=A,B,...    parameters to tune (default: host.us,host.us_per_seq,front_end.queue_us)
  filter=GLOB     only the cases of that name
  share=0.5       of the cases that are tuned on; the others are held out
  jobs=N          processes (default: one per CPU)
  write=true      put the result into validation/calibration.yaml and conf/front_end

Exits with 0, or 2 on bad input."""
DEFAULT_FREE = "host.us,host.us_per_seq,front_end.queue_us"
BUCKETS = 1000


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    cases: Path
    gpu: str
    engine: str
    free: tuple[Parameter, ...]
    pattern: str
    share: float
    jobs: int
    write: bool


def main(arguments: Sequence[str]) -> int:
    """0, or 2 after one line on bad input."""
    if any(word in ("-h", "--help") for word in arguments):
        print(USAGE)
        return 0
    try:
        _calibrate(_parsed(arguments))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _calibrate(asked: Arguments) -> None:
    cases = _eligible(asked)
    tuned = [case for case in cases if _is_tuned(case.name, asked.share)]
    held = [case for case in cases if not _is_tuned(case.name, asked.share)]
    if len(tuned) < len(asked.free):
        reason = f"{len(tuned)} cases for {len(asked.free)} parameters; raise share or lower free"
        raise SettingError("share", asked.share, reason)
    with Runs(tuned, asked.cases, asked.jobs) as runs:
        found = search(asked.free, runs.residuals)
    values = {name: float(f"{value:.4g}") for name, value in found.values.items()}
    with Runs(held, asked.cases, asked.jobs) as runs:
        errors = {"tuned": summary(found.residuals), "held_out": summary(runs.residuals(values))}
    entry = _entry(asked, values, tuned, held, errors)
    Console(width=100).print(_table(asked, values, errors))
    if asked.write:
        book.write(asked.gpu, asked.engine, entry)
        book.write_front_end(asked.gpu, asked.engine, entry, conf_dir() / "front_end")


def summary(residuals: Sequence[Residual]) -> dict[str, dict[str, float]]:
    """Metric → number, median and p90 of the absolute error, and the mean signed error."""
    found = {}
    for metric in sorted({residual.metric for residual in residuals}):
        errors = np.expm1([r.log_ratio for r in residuals if r.metric == metric])
        found[metric] = {
            "cases": len(errors),
            "median": round(float(np.median(np.abs(errors))), 4),
            "p90": round(float(np.percentile(np.abs(errors), 90)), 4),
            "mean_signed": round(float(np.mean(errors)), 4),
        }
    return found


def _eligible(asked: Arguments) -> list[Case]:
    """Covered cases of this GPU and engine with kernel tables, in which nobody waits for memory.

    Cases that their source makes doubtful are left out.
    """
    if not asked.cases.is_dir():
        raise MissingDataError(f"cases={asked.cases}: no such folder")
    found = []
    for path in sorted(asked.cases.glob("*.yaml")):
        if not fnmatch.fnmatchcase(path.stem, asked.pattern):
            continue
        case = shortened(read_case(path))
        if case.not_covered is not None or case.dp > 1:
            continue
        if any(note.startswith(DOUBTFUL) for note in case.notes):
            continue
        profile = profile_for(case.engine.name, case.engine.version)
        if profile.host_times(case.tp) != asked.engine:
            continue
        if option_of("hardware", case.hardware) != asked.gpu:
            continue
        if settings_of(case, asked.cases).cost.kind == "kernels":
            found.append(case)
    with Runs(found, asked.cases, asked.jobs) as runs:
        found = runs.with_room()
    if not found:
        raise MissingDataError(
            f"cases={asked.cases}: none of {asked.engine} on {asked.gpu} has kernel tables"
        )
    return found


def _is_tuned(name: str, share: float) -> bool:
    """By a hash of the name: the same cases in every run, whatever else is in the folder."""
    return zlib.crc32(name.encode()) % BUCKETS < share * BUCKETS


def _entry(
    asked: Arguments,
    values: Values,
    tuned: Sequence[Case],
    held: Sequence[Case],
    errors: dict[str, Any],
) -> dict[str, Any]:
    sources = ", ".join(sorted({case.source.name for case in (*tuned, *held)}))
    return {
        "host": part("host", values),
        **{name: values[name] for name in COST_FIELDS if name in values},
        "front_end": part("front_end", values),
        "fitted_from": f"{sources}: {len(tuned)} cases tuned on, {len(held)} held out",
        "parameters": len(asked.free),
        "fitted_at": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "error": errors,
    }


def _table(asked: Arguments, values: Values, errors: dict[str, Any]) -> Table:
    shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
    table = Table(title=f"{asked.engine} on {asked.gpu}: {shown} (µs)", box=None)
    for column in ("cases", "metric", "n", "median |e|", "p90 |e|", "mean"):
        table.add_column(column, justify="left" if column in ("cases", "metric") else "right")
    for which, metrics in errors.items():
        for metric, row in metrics.items():
            shares = (f"{row['median']:.1%}", f"{row['p90']:.1%}", f"{row['mean_signed']:+.1%}")
            table.add_row(which.replace("_", " "), metric, str(row["cases"]), *shares)
    return table


def _parsed(arguments: Sequence[str]) -> Arguments:
    defaults = {
        "free": DEFAULT_FREE,
        "filter": "*",
        "share": "0.5",
        "jobs": str(cpus()),
        "write": "false",
    }
    given = options.read(arguments, defaults, ("cases", "gpu", "engine"))
    return Arguments(
        Path(given["cases"]),
        given["gpu"],
        given["engine"],
        chosen(given["free"].split(",")),
        given["filter"],
        _share(given["share"]),
        _jobs(given["jobs"]),
        _flag(given["write"]),
    )


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise SettingError("share", text, "must be above 0 and at most 1")
    return share


def _jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise SettingError("jobs", text, "must be a whole number of processes, 1 or more")
    return int(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise SettingError("write", text, "must be true or false")
    return text == "true"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
