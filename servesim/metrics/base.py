"""The seam for metrics, and the latencies of one request that several of them need.

Definitions are those of vLLM's `bench serve`, counted from intended arrival:

TTFT  first token − arrival.
TPOT  (last token − first token) / (tokens − 1); no value for a reply of one token.
ITL   gap between two streamed chunks of a reply; without speculation a chunk is a token.
E2E   last token − arrival.
"""

from collections.abc import Mapping
from typing import Protocol

from servesim.records import RequestRecord, RunRecord
from servesim.units import ps_to_seconds

Value = float | int | str | None
Row = Mapping[str, Value]


class Metric(Protocol):
    """Some columns of the summary; a value whose fields are its YAML.

    A metric over `RunRecord.steps` says so by a class attribute, `needs_steps = True`.
    """

    def measure(self, run: RunRecord) -> Row:
        """Column → value; units are in the names, None stands for no value."""


def needs_steps(metric: Metric) -> bool:
    """Whether a metric has no value without a record per step."""
    return bool(getattr(metric, "needs_steps", False))


def ttft_s(record: RequestRecord) -> float | None:
    """Time to first token, seconds; None where there is none."""
    if record.first_token_ps is None:
        return None
    return ps_to_seconds(record.first_token_ps - record.arrival_ps)


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token after the first, seconds; None below two tokens."""
    if record.first_token_ps is None or record.last_token_ps is None or record.output_tokens < 2:
        return None
    return ps_to_seconds(record.last_token_ps - record.first_token_ps) / (record.output_tokens - 1)


def e2e_s(record: RequestRecord) -> float | None:
    """End-to-end latency of a finished request, seconds."""
    if record.status != "finished" or record.last_token_ps is None:
        return None
    return ps_to_seconds(record.last_token_ps - record.arrival_ps)


def queue_s(record: RequestRecord) -> float | None:
    """Arrival to first admission, seconds."""
    if record.scheduled_ps is None:
        return None
    return ps_to_seconds(record.scheduled_ps - record.arrival_ps)


def duration_s(run: RunRecord) -> float:
    """First arrival to the end of the run, seconds; what throughputs are divided by."""
    first = min((r.arrival_ps for r in run.requests), default=0)
    return ps_to_seconds(max(run.end_ps - first, 0))


def rate(amount: float, seconds: float) -> float | None:
    """Amount per second; None of no time."""
    return amount / seconds if seconds > 0 else None
