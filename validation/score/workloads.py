"""A case's workload as settings of servesim."""

import math
from pathlib import Path

from scipy.optimize import brentq
from scipy.special import log_ndtr

from servesim.errors import MissingDataError, ServesimError
from validation.cases.workloads import (
    ClosedLoop,
    Fixed,
    Length,
    LogNormal,
    OpenLoop,
    Requests,
    Sessions,
    StaticBatch,
    Uniform,
    Workload,
)

WIDEST = 20.0  # σ² beyond which the mean of a law is not looked for

_LENGTHS = "servesim.workload.lengths"
_ARRIVALS = "servesim.workload.arrivals"


def workload_overrides(workload: Workload, folder: Path, ranks: int = 1) -> tuple[str, ...]:
    """Settings of servesim that make this load.

    Args:
        workload: what was asked of the engine.
        folder: of the case, beside which a workload's file lies.
        ranks: data-parallel ranks, one of which is simulated; it gets its share of the load.

    Raises:
        MissingDataError: the workload's file is not there.
        ServesimError: a load that cannot be divided among ranks.
    """
    if ranks > 1 and not isinstance(workload, ClosedLoop | OpenLoop | StaticBatch):
        raise ServesimError(f"dp={ranks}: recorded requests cannot be divided among ranks")
    if isinstance(workload, ClosedLoop):
        return _closed_loop(workload, ranks)
    if isinstance(workload, OpenLoop):
        return _open_loop(workload, ranks)
    if isinstance(workload, StaticBatch):
        return _static_batch(workload, ranks)
    if isinstance(workload, Requests):
        return _requests(workload, folder)
    if isinstance(workload, Sessions):
        path = _quoted(_beside(folder, workload.file))
        return ("workload=sessions", f"workload.path={path}")
    return (f"workload={workload.name}", *workload.overrides)


def length(law: Length) -> str:
    """A law of lengths as a value of Hydra's grammar."""
    if isinstance(law, Fixed):
        return f"{{_target_:{_LENGTHS}.Fixed,tokens:{law.tokens}}}"
    if isinstance(law, Uniform):
        bounds = f"min_tokens:{law.low},max_tokens:{law.high}"
        return f"{{_target_:{_LENGTHS}.Uniform,{bounds}}}"
    if law.cv == 0:
        return f"{{_target_:{_LENGTHS}.Fixed,tokens:{max(round(law.mean), 1)}}}"
    sigma = math.sqrt(math.log1p(law.cv**2))
    if law.high is None:
        shape = f"mean_tokens:{law.mean:g},sigma:{sigma:.6g}"
    else:
        mean = _unbounded_mean(law.mean, sigma, law.high)
        shape = f"mean_tokens:{mean:.6g},sigma:{sigma:.6g},max_tokens:{law.high}"
    return f"{{_target_:{_LENGTHS}.LogNormal,{shape}}}"


def _unbounded_mean(mean: float, sigma: float, high: int) -> float:
    """Mean of the log-normal law that has this mean within its bound.

    With μ of the logarithm and z = (ln high − μ) / σ, the bounded mean is the unbounded one times
    Φ(z − σ) ÷ Φ(z), which rises with it.
    """

    def excess(log_mean: float) -> float:
        z = (math.log(high) - log_mean + sigma**2 / 2) / sigma
        bounded = log_mean + log_ndtr(z - sigma) - log_ndtr(z)
        return float(bounded - math.log(mean))

    return math.exp(brentq(excess, math.log(mean), math.log(high) + WIDEST * sigma**2))


def shown(law: Length) -> str:
    """A law of lengths for people: `1024`, `820…1024` or `log-normal 500, CV 0.8`."""
    if isinstance(law, Fixed):
        return str(law.tokens)
    if isinstance(law, Uniform):
        return f"{law.low}…{law.high}"
    bound = "" if law.high is None else f", at most {law.high}"
    return f"log-normal {law.mean:g}, CV {law.cv:g}{bound}"


def _anew(setting: str, value: str) -> tuple[str, str]:
    """Put a mapping in the place of another; without removing it first, Hydra would merge them."""
    return f"~{setting}", f"+{setting}={value}"


def _laws(workload: ClosedLoop | OpenLoop | StaticBatch) -> tuple[str, ...]:
    """Prompts and replies; a recorded mean is that of the sample, so that it is drawn evenly."""
    laws = workload.prompt, workload.output
    return (
        *_anew("workload.prompt", length(workload.prompt)),
        *_anew("workload.output", length(workload.output)),
        *(["workload.even_ranks=true"] if LogNormal in map(type, laws) else []),
    )


def _closed_loop(workload: ClosedLoop, ranks: int) -> tuple[str, ...]:
    users = math.ceil(workload.concurrency / ranks)
    return (
        "workload=closed_loop",
        f"workload.concurrency={users}",
        f"workload.num_requests={max(math.ceil(workload.num_requests / ranks), users)}",
        *_laws(workload),
    )


def _open_loop(workload: OpenLoop, ranks: int) -> tuple[str, ...]:
    settings = [
        "workload=fixed",
        f"workload.num_requests={math.ceil(workload.num_requests / ranks)}",
        f"workload.rate_rps={mean_rate_rps(workload) / ranks:.10g}",
        *_anew("workload.arrival", _arrival(workload, ranks)),
        *_laws(workload),
    ]
    if workload.prefix is not None:
        groups = f"num_groups:{workload.prefix.groups},prefix_tokens:{workload.prefix.tokens}"
        target = "servesim.workload.prefixes.PrefixGroups"
        settings += [f"workload.prefix={{_target_:{target},{groups}}}"]
    return tuple(settings)


def mean_rate_rps(workload: OpenLoop) -> float:
    """Requests per second, of all stages together; inf where all come at once."""
    if workload.stages is None:
        return workload.rate_rps
    requests = sum(stage.num_requests for stage in workload.stages)
    return requests / sum(stage.duration_s for stage in workload.stages)


def _arrival(workload: OpenLoop, ranks: int) -> str:
    shapes = {
        "constant": "Constant",
        "poisson": "Poisson",
        "gamma": f"Gamma,burstiness:{workload.burstiness:g}",
    }
    within = f"{{_target_:{_ARRIVALS}.{shapes[workload.arrival]},first_at_zero:true}}"
    if workload.stages is None:
        return within
    rates = ",".join(f"{stage.rate_rps / ranks:.10g}" for stage in workload.stages)
    lasting = ",".join(f"{stage.duration_s:.10g}" for stage in workload.stages)
    target = "servesim.workload.stages.Stages"
    return f"{{_target_:{target},rates_rps:[{rates}],durations_s:[{lasting}],within:{within}}}"


def _static_batch(workload: StaticBatch, ranks: int) -> tuple[str, ...]:
    number = f"workload.num_requests={math.ceil(workload.batch / ranks)}"
    return ("workload=fixed", number, "workload.rate_rps=inf", *_laws(workload))


def _requests(workload: Requests, folder: Path) -> tuple[str, ...]:
    columns = ("arrival", "arrival_s"), ("prompt_tokens",) * 2, ("output_tokens",) * 2
    settings = [
        "workload=trace",
        f"workload.path={_quoted(_beside(folder, workload.file))}",
        *(f"workload.columns.{name}={column}" for name, column in columns),
        "workload.unit=s",
        "workload.origin=zero",
    ]
    if workload.block_size is not None:
        settings += [
            "workload.columns.block_ids=block_ids",
            f"workload.block_size={workload.block_size}",
            "workload.blocks_cover=prompt_and_output",
        ]
    return tuple(settings)


def _beside(folder: Path, file: str) -> Path:
    path = (folder / file).resolve()
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file, which the case's workload names")
    return path


def _quoted(path: Path) -> str:
    """A path as text of Hydra's grammar."""
    return "'" + str(path).replace("\\", "\\\\").replace("'", "\\'") + "'"
