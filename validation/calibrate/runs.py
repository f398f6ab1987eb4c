"""Measured cases simulated again and again with other parameters.

A case is composed, and its requests are drawn, once per process: a search asks for it some hundred
times. For the same reason the stages of an open loop are cut to a minute each, which is long
enough for means of a load that the engine sustains, and other cases are not.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from servesim.app.api import setup_from
from servesim.app.run import execute
from servesim.app.setup import Setup
from servesim.workload.base import Load
from validation.calibrate.parameters import Values, laid_over
from validation.cases.case import Case
from validation.cases.workloads import OpenLoop
from validation.compare.statistics import of_record
from validation.score.predict import predict
from validation.score.settings import settings_of

# statistics that a search may look at; tails are left to the score
CENTRAL = ("mean", "unspecified", "value")
METRICS = ("ttft_ms", "tpot_ms", "itl_ms", "makespan_s")
STAGE_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Residual:
    """How far a simulated figure is from the measured one.

    Attributes:
        case: its name.
        source: of the case.
        metric: of METRICS.
        log_ratio: log(simulated ÷ measured).
    """

    case: str
    source: str
    metric: str
    log_ratio: float


def has_room(case: Case, folder: Path) -> bool:
    """Whether the cache holds what is offered, so that nobody waits for memory."""
    return not predict(case, settings_of(case, folder)).congested


_known: dict[tuple[Path, str], tuple[Setup, Load]] = {}  # of this process


class Runs:
    """Cases and the processes that simulate them; a context manager.

    Args:
        cases: with a kernels cost each.
        folder: of their files.
        jobs: processes; one needs none beside this.
    """

    def __init__(self, cases: Sequence[Case], folder: Path, jobs: int) -> None:
        self._cases, self._folder = tuple(cases), folder
        spawn = get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, mp_context=spawn) if jobs > 1 else None

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def with_room(self) -> list[Case]:
        """The cases in which nobody waits for memory."""
        rooms = self._each(has_room)
        return [case for case, room in zip(self._cases, rooms, strict=True) if room]

    def residuals(self, values: Values) -> list[Residual]:
        """Of all cases, in their order, with these parameters."""
        of_cases = self._each(residuals_of, dict(values))
        return [residual for of_case in of_cases for residual in of_case]

    def _each(self, function: Callable[..., T], *more: object) -> list[T]:
        """`function(case, folder, *more)` of all cases, in their order."""
        if self._pool is None:
            return [function(case, self._folder, *more) for case in self._cases]
        jobs = [self._pool.submit(function, case, self._folder, *more) for case in self._cases]
        return [job.result() for job in jobs]


def shortened(case: Case) -> Case:
    """The case with stages of a minute, and nothing measured of a stage."""
    workload = case.workload
    if not isinstance(workload, OpenLoop) or not workload.stages:
        return case
    stages = tuple(replace(s, duration_s=min(s.duration_s, STAGE_S)) for s in workload.stages)
    total = sum(stage.num_requests for stage in stages)
    rate_rps = total / sum(stage.duration_s for stage in stages)
    shorter = replace(workload, stages=stages, num_requests=total, rate_rps=rate_rps)
    return replace(case, workload=shorter, measured_by_stage=None)


def residuals_of(case: Case, folder: Path, values: Values) -> list[Residual]:
    """Residuals of one case.

    Raises:
        ServesimError: it cannot be simulated.
    """
    key = folder, case.name
    if key not in _known:
        setup = setup_from(*settings_of(case, folder).overrides)
        _known[key] = setup, setup.workload.load(setup.seed)
    setup, load = _known[key]
    setup = laid_over(setup, values, case.counted_from == "sent")
    figures = of_record(execute(setup, load=load).record)
    found = []
    for metric in METRICS:
        for statistic, measured in case.measured.get(metric, {}).items():
            simulated = figures.value(metric, statistic)
            if statistic in CENTRAL and simulated and measured > 0:
                ratio = math.log(simulated / measured)
                found.append(Residual(case.name, case.source.name, metric, ratio))
    return found
