"""One line per figure that was measured: what it was, what was predicted, and how far to trust it.

The columns of rows.csv are `COLUMNS`; validation/score/README.md says what each one is.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from servesim.app.result import Result
from validation.cases.case import Case, Measured
from validation.cases.workloads import ClosedLoop, OpenLoop, Requests, Sessions, StaticBatch
from validation.compare.errors import relative_error
from validation.compare.statistics import UNSPECIFIED, Figures
from validation.score.load import Offered
from validation.score.settings import Settings
from validation.score.workloads import mean_rate_rps, shown

Row = dict[str, object]
SCORED, FAILED, NOT_COVERED = "scored", "failed", "not covered"
WHOLE_RUN = "run"
DOUBTFUL = "doubtful"  # how a note begins where the source contradicts itself

IDENTITY = (
    *("case", "source", "engine", "engine_version", "hardware", "model", "tp", "dp", "dtype"),
    *("kv_dtype", "limits", "workload", "concurrency", "rate_rps", "prompt", "output"),
)
COLUMNS = (
    *IDENTITY,
    *("part", "metric", "statistic", "measured", "predicted", "error", "low", "high", "noise"),
    *("cost", "cost_kind", "in_range", "kv_tokens", "blocks_derived", "at_a_time", "kv_share"),
    *("congested", "unlimited", "measured_queued", "predicted_queued"),
    *("status", "reason", "flags", "notes"),
)
IN_RANGE_FROM = 0.95  # share of the engine's time inside the range that the cost was fitted on
QUEUED_FROM = 2.0  # TTFT in multiples of what it is with KV for everyone
NEAR_KNEE = 0.5  # offered KV over the cache's, below which nobody can be waiting for memory
PER_RANK = (  # what all ranks come to together
    *("output_tokens_per_s", "total_tokens_per_s", "requests_per_s"),
    *("prefix_hit_tokens", "prefix_query_tokens"),
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A simulated case.

    Attributes:
        result: of the run.
        whole: figures of the whole run.
        stages: of each stage of the load, where it has any.
        unlimited: of the run with KV for everyone; `whole` where that is what it had.
        load: what was offered.
        kv_tokens: what the cache holds.
    """

    result: Result
    whole: Figures
    stages: tuple[Figures, ...]
    unlimited: Figures
    load: Offered
    kv_tokens: int

    @property
    def congested(self) -> bool:
        """More KV is offered than the cache holds."""
        return self.load.kv_tokens > self.kv_tokens

    @property
    def in_range(self) -> float:
        """Share of the engine's time in steps like those that the cost was fitted on."""
        totals = self.result.record.totals
        return 1 - totals.outside_ps / max(totals.busy_ps, 1)

    @property
    def unfinished(self) -> int:
        """Requests without a full reply."""
        return sum(r.status != "finished" for r in self.result.record.requests)


def identity(case: Case) -> Row:
    """The columns that say which case a row is of."""
    workload = case.workload
    limits = {name: value for name, value in asdict(case.limits).items() if value is not None}
    row: Row = {
        "case": case.name,
        "source": case.source.name,
        "engine": case.engine.name,
        "engine_version": case.engine.version,
        "workload": workload.kind,
        "limits": json.dumps(limits, sort_keys=True) if limits else "",
        "concurrency": None,
        "rate_rps": None,
        "noise": case.noise,
    }
    for name in ("hardware", "model", "tp", "dp", "dtype", "kv_dtype"):
        row[name] = getattr(case, name)
    if isinstance(workload, ClosedLoop):
        row["concurrency"] = workload.concurrency
    elif isinstance(workload, StaticBatch):
        row["concurrency"] = workload.batch
    elif isinstance(workload, OpenLoop):
        row["rate_rps"] = mean_rate_rps(workload)
        row["workload"] = f"{workload.kind} {workload.arrival}"
    elif isinstance(workload, Requests | Sessions):
        row["workload"] = f"{workload.kind} {workload.file}"
    else:
        row["workload"] = " ".join((workload.kind, workload.name, *workload.overrides))
    for name in ("prompt", "output"):
        law = getattr(workload, name, None)
        row[name] = "" if law is None else shown(law)
    return row


def rows_of(case: Case, settings: Settings, prediction: Prediction) -> list[Row]:
    """The rows of a case that was simulated; one of a figure that the run lacks has no error."""
    common = identity(case) | _trust(settings, prediction)
    parts = [(WHOLE_RUN, case.measured, prediction.whole)]
    for number, measured in enumerate(case.measured_by_stage or ()):
        parts.append((f"stage {number}", measured, prediction.stages[number]))
    return [
        common | {"part": part, "status": SCORED} | line
        for part, measured, figures in parts
        for line in _lines(measured, figures, prediction, settings, part)
    ]


def unscored(case: Case, status: str, reason: str) -> Row:
    """The row of a case that is not covered, or that failed."""
    return identity(case) | {"status": status, "reason": reason, "notes": "; ".join(case.notes)}


def _trust(settings: Settings, prediction: Prediction) -> Row:
    """What a prediction rests on."""
    flags = {
        "congested": prediction.congested,
        "roofline cost": settings.cost.kind == "roofline",
        "out of range": prediction.in_range < IN_RANGE_FROM,
        "derived blocks": settings.blocks_derived,
        "doubtful source": any(note.startswith(DOUBTFUL) for note in settings.notes),
        "not all finished": bool(prediction.unfinished),
    }
    return {
        "cost": settings.cost.option,
        "cost_kind": settings.cost.kind,
        "in_range": prediction.in_range,
        "kv_tokens": prediction.kv_tokens,
        "blocks_derived": settings.blocks_derived,
        "at_a_time": prediction.load.concurrency,
        "kv_share": prediction.load.kv_tokens / max(prediction.kv_tokens, 1),
        "congested": prediction.congested,
        "flags": ", ".join(flag for flag, is_so in flags.items() if is_so),
        "notes": "; ".join((*settings.notes, *prediction.result.warnings)),
    }


def _lines(
    measured: Measured, figures: Figures, prediction: Prediction, settings: Settings, part: str
) -> list[Row]:
    lines: list[Row] = []
    for metric, by_statistic in measured.items():
        ranks = settings.ranks if metric in PER_RANK else 1
        for statistic, value in by_statistic.items():
            line: Row = {"metric": metric, "statistic": statistic, "measured": value}
            predicted = figures.value(metric, statistic)
            if predicted is None:
                line["reason"] = f"the simulation has no {metric} {statistic}"
            else:
                predicted *= ranks
                line |= {"predicted": predicted, "error": relative_error(predicted, value)}
            if part == WHOLE_RUN:
                ends = _interval(prediction.result.summary, metric, statistic)
                line |= {end: value * ranks for end, value in ends.items()}
                near = prediction.load.kv_tokens >= NEAR_KNEE * prediction.kv_tokens
                line |= _knee(line, prediction.unlimited) if near and metric == "ttft_ms" else {}
            lines.append(line)
    return lines


def _knee(line: Row, unlimited: Figures) -> Row:
    """Whether requests queued for memory, as measured and as predicted."""
    without = unlimited.value("ttft_ms", str(line["statistic"]))
    if without is None or "predicted" not in line:
        return {}
    limit = QUEUED_FROM * without
    queued = {
        f"{side}_queued": float(str(line[side])) > limit for side in ("measured", "predicted")
    }
    return {"unlimited": without, **queued}


_SUMMARY = {
    "makespan_s": "duration_s",
    "output_tokens_per_s": "output_throughput_tokens_per_s",
    "total_tokens_per_s": "total_throughput_tokens_per_s",
    "requests_per_s": "request_throughput_rps",
}


def _interval(summary: Mapping[str, object], metric: str, statistic: str) -> dict[str, float]:
    """Ends of a prediction interval, where the summary has them beside the figure's column.

    They are called `COLUMN_low` and `COLUMN_high`, e.g. `ttft_mean_s_low`, in the column's unit.
    """
    name = "mean" if statistic == UNSPECIFIED else statistic
    column = _SUMMARY.get(metric, metric)
    scale = 1.0
    if metric.endswith("_ms"):
        column, scale = f"{metric.removesuffix('_ms')}_{name}_s", 1e3
    ends = {end: summary.get(f"{column}_{end}") for end in ("low", "high")}
    return {end: v * scale for end, v in ends.items() if isinstance(v, int | float)}
