"""What a converter makes of a row or a run, and what all converters share."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from servesim.seeds import stream
from servesim.workload.arrivals import Gamma
from validation.cases.case import Case
from validation.cases.published import engine_known, hardware_stem, load_model, model_stem
from validation.cases.rows import Row

SIXTEEN_BITS = ("fp16", "bf16", "float16", "bfloat16", "auto")


@dataclass(frozen=True, slots=True)
class Converted:
    """A case and the files beside it, name → text."""

    case: Case
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Model and GPU by their YAML, or by their published name where there is none.

    Attributes:
        model: see Case.
        hardware: see Case.
        not_covered: why servesim cannot simulate it, or None.
    """

    model: str
    hardware: str
    not_covered: str | None


def place(engine: str, model: str, gpu: str, tp: int = 1) -> Place:
    """Where a published model on a published GPU under an engine is found in conf/."""
    model_yaml, gpu_yaml = model_stem(model), hardware_stem(gpu)
    reason = None
    if not engine_known(engine):
        reason = f"no scheduler profile of {engine}"
    elif model_yaml is None:
        reason = f"no model {model} in conf/model"
    elif gpu_yaml is None:
        reason = f"no GPU {gpu} in conf/hardware"
    elif not load_model(model_yaml).splits_over(tp):
        reason = f"tp={tp} does not split the heads of {model_yaml}"
    return Place(model_yaml or model, gpu_yaml or gpu, reason)


def dtype_of(published: str, precision: str | None) -> str:
    """Number format of the weights.

    16-bit formats are all written bf16: they take the same bytes and run at the same rate. Where
    the source gives no precision, a name that ends in one says it; a plain name is 16-bit.
    """
    if precision and precision.lower() not in SIXTEEN_BITS:
        return {"fp4": "nvfp4"}.get(precision.lower(), precision.lower())
    name = published.lower()
    for part, dtype in (("nvfp4", "nvfp4"), ("-fp4", "nvfp4"), ("-fp8", "fp8")):
        if part in name:
            return dtype
    return "bf16"


def measured(row: Row, columns: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, float]]:
    """Metric → statistic → value, from metric → statistic → column; blank ones are left out."""
    found: dict[str, dict[str, float]] = {}
    for metric, statistics in columns.items():
        values = {s: row.number_or_none(column) for s, column in statistics.items()}
        given = {statistic: value for statistic, value in values.items() if value is not None}
        if given:
            found[metric] = given
    return found


def requests_csv(
    rows: Iterable[tuple[float, int, int]], block_ids: Iterable[list[int]] | None = None
) -> str:
    """The file of a `requests` workload from (arrival in s, prompt, reply)."""
    header = ["arrival_s", "prompt_tokens", "output_tokens"]
    if block_ids is None:
        return table(header, ((f"{s:.9g}", p, o) for s, p, o in rows))
    both = zip(rows, block_ids, strict=True)
    lines = ((f"{s:.9g}", p, o, json.dumps(ids)) for (s, p, o), ids in both)
    return table([*header, "block_ids"], lines)


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def drawn_arrivals(name: str, num_requests: int, rate_rps: float, burstiness: float) -> list[float]:
    """Arrivals that a source drew and did not record, s: drawn again, the same for each name."""
    times = Gamma(burstiness).times(num_requests, stream(0, f"case {name}"))
    return [float(time) / rate_rps for time in times]
