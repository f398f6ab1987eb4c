"""Simulate one case."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import servesim
from servesim.app.result import Result
from validation.cases.case import Case
from validation.cases.workloads import OpenLoop
from validation.compare.statistics import Figures, of_record, served
from validation.score.load import offered
from validation.score.rows import NOT_COVERED, Prediction, Row, rows_of, unscored
from validation.score.settings import Settings, settings_of

_DEFAULT_BLOCK_SIZE = 16
_ROOM = 2  # times the offered KV, for a run in which nobody waits for memory


def score_case(case: Case, folder: Path, overrides: Sequence[str] = ()) -> list[Row]:
    """The rows of a case.

    Args:
        case: what was measured.
        folder: of the case's file.
        overrides: settings of servesim, laid over the case's own.

    Raises:
        ServesimError: it cannot be simulated.
    """
    if case.not_covered is not None:
        return [unscored(case, NOT_COVERED, case.not_covered)]
    settings = settings_of(case, folder)
    return rows_of(case, settings, predict(case, settings, overrides))


def predict(case: Case, settings: Settings, overrides: Sequence[str] = ()) -> Prediction:
    """Run the case, and where it is congested once more with KV for everyone.

    Raises:
        ServesimError: it cannot be simulated.
    """
    result = servesim.simulate(*settings.overrides, *overrides)
    whole, record = of_record(result.record), result.record
    load = offered(case, served(record), settings.ranks)
    prediction = Prediction(
        result,
        whole,
        _stages(case, result, settings.ranks),
        whole,
        load,
        record.kv_blocks * record.block_size,
    )
    if not prediction.congested:
        return prediction
    block_size = case.limits.block_size or _DEFAULT_BLOCK_SIZE
    blocks = math.ceil(_ROOM * load.kv_tokens / block_size) + 1
    with_room = f"kv.num_gpu_blocks={blocks}", "intervals.replications=0"
    roomy = servesim.simulate(*settings.overrides, *overrides, *with_room)
    return Prediction(
        result,
        whole,
        prediction.stages,
        of_record(roomy.record),
        load,
        prediction.kv_tokens,
    )


def _stages(case: Case, result: Result, ranks: int) -> tuple[Figures, ...]:
    """Figures by stage: a stage has the requests that it sent, in order of arrival."""
    workload = case.workload
    if not isinstance(workload, OpenLoop) or workload.stages is None:
        return ()
    in_order = sorted(result.record.requests, key=lambda r: (r.arrival_ps, r.rid))
    ends = accumulate((round(s.num_requests / ranks) for s in workload.stages), initial=0)
    return tuple(
        of_record(result.record, frozenset(r.rid for r in in_order[first:last]))
        for first, last in pairwise(ends)
    )
