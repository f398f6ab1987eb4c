"""By how much the runs of a score were off: from rows.csv, one pair of log ratios per run."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from servesim.errors import MissingDataError
from validation.score.engines import profile_for
from validation.score.names import option_of
from validation.score.rows import DOUBTFUL, SCORED, WHOLE_RUN

DECODE = ("tpot_ms", "itl_ms")  # the first one that is there
PREFILL = ("ttft_ms",)
STATISTICS = ("mean", "unspecified", "value")  # central ones; tails are left to the score
TEXT = ("case", "engine", "engine_version", "hardware", "part", "metric", "statistic", "flags")


@dataclass(frozen=True, slots=True)
class Off:
    """How far a predicted run is from the measured one.

    Attributes:
        case: its name.
        gpu: option of conf/hardware.
        engine: family, as `fitted_on.engine` of a cost names it.
        cost: option of conf/cost.
        decode: log(measured ÷ predicted) of TPOT, or of ITL where there is none.
        prefill: the same of TTFT.
    """

    case: str
    gpu: str
    engine: str
    cost: str
    decode: float
    prefill: float


def rows_of(folders: Sequence[Path]) -> pd.DataFrame:
    """The rows of scores that a distribution may be taken from, and an interval measured on.

    Central figures of whole runs in which nobody waits for memory, of one data-parallel rank, and
    not doubtful.

    Raises:
        MissingDataError: a folder has no rows.csv, or there is no such row.
    """
    tables = []
    for folder in folders:
        path = folder / "rows.csv"
        if not path.is_file():
            raise MissingDataError(f"score={folder}: no rows.csv in it")
        tables.append(pd.read_csv(path, dtype=dict.fromkeys(TEXT, str), low_memory=False))
    rows = pd.concat(tables, ignore_index=True)
    flags = rows["flags"].fillna("")
    rows["engine_version"] = rows["engine_version"].fillna("")
    kept = rows.loc[
        (rows["status"] == SCORED)
        & (rows["part"] == WHOLE_RUN)
        & (rows["dp"] == 1)
        & rows["error"].notna()
        & rows["statistic"].isin(STATISTICS)
        & ~flags.str.contains("congested")
        & ~flags.str.contains(DOUBTFUL)
    ]
    if kept.empty:
        raise MissingDataError(f"score={','.join(map(str, folders))}: no run that counts")
    columns = (kept[name] for name in ("hardware", "engine", "engine_version"))
    families = [_family(*map(str, where)) for where in zip(*columns, strict=True)]
    return kept.assign(gpu=[gpu for gpu, _ in families], family=[engine for _, engine in families])


def offs(rows: pd.DataFrame) -> list[Off]:
    """One for every run of `rows_of` that has both a TTFT and a TPOT or ITL, by case."""
    found = []
    for case, of_case in rows.groupby("case", sort=True):
        first = of_case.iloc[0]
        logs = [_log(of_case, metrics) for metrics in (DECODE, PREFILL)]
        if logs[0] is not None and logs[1] is not None:
            where = str(first["gpu"]), str(first["family"]), str(first["cost"])
            found.append(Off(str(case), *where, logs[0], logs[1]))
    return found


def half_of(case: str) -> int:
    """0 or 1, by a hash of the name: the same in every run, whatever else there is."""
    return zlib.crc32(case.encode()) % 2


def _log(rows: pd.DataFrame, metrics: Sequence[str]) -> float | None:
    for metric in metrics:
        for statistic in STATISTICS:
            of_it = rows.loc[(rows["metric"] == metric) & (rows["statistic"] == statistic)]
            if len(of_it):
                return -math.log1p(float(of_it.iloc[0]["error"]))
    return None


def _family(hardware: str, engine: str, version: str) -> tuple[str, str]:
    family = profile_for(engine, version or None).family
    return option_of("hardware", hardware), family
