"""Small cases made by hand."""

from dataclasses import replace

from validation.cases.case import Case, Engine, Source
from validation.cases.workloads import ClosedLoop, Fixed

SOURCE = Source("hand", "example.org", "0", None, "runs.csv")
CASE = Case(
    name="a",
    source=SOURCE,
    engine=Engine("vllm", "0.12.0"),
    model="mistral_nemo_12b",
    hardware="a40",  # nothing was fitted to this pair: the roofline predicts it
    workload=ClosedLoop(2, 4, Fixed(64), Fixed(8)),
    measured={"ttft_ms": {"unspecified": 10.0}, "tpot_ms": {"mean": 8.0}},
    counted_from="queued",
)


def case(**changes):
    """`CASE` with other fields."""
    return replace(CASE, **changes)
