"""Request logs and prompts of LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT).

A run's `requests.jsonl` has one measured vLLM request per line, on two clocks: `arrival_time` is
Unix time in the front end, `queued_ts`, `scheduled_ts`, `first_token_ts` and `last_token_ts` are
the engine's monotonic time. A workload's `*.blocks16.jsonl` has the same requests as made, with
ids that each stand for all 16-token blocks so far, prompt and reply.
"""

from dataclasses import dataclass

import numpy as np

from servesim import checks
from servesim.content import Content, TraceBlocks
from servesim.errors import TraceError
from servesim.workload.trace import fields, table
from servesim.workload.trace.base import Rows, Trace
from servesim.workload.trace.clock import Clock
from servesim.workload.trace.table import Table

BLOCK_SIZE = 16
BLOCK_COLUMNS = ("input_toks", "output_toks", "hash_ids")
CLOCKS = {"queued_ts": Clock("s", "monotonic"), "arrival_time": Clock("s", "epoch")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMServingSimBlocks(Trace):
    """A workload, `*.blocks16.jsonl`: intended arrivals, lengths, and which prefixes are shared."""

    def read(self) -> Rows:
        """All rows; time 0 is the start of the workload."""
        raw = table.read(self.path, ("arrival_time_ns", *BLOCK_COLUMNS), "jsonl")
        return Rows(
            times_ns=Clock("ns", "zero").arrivals(raw, "arrival_time_ns", self.max_gap_s),
            prompt_tokens=fields.whole(raw, "input_toks", at_least=1),
            output_tokens=fields.whole(raw, "output_toks", at_least=1),
            starts_at_zero=True,
            contents=_contents(raw),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMServingSimRun(Trace):
    """A measured run, `requests.jsonl`; the first request used arrives at 0.

    Rows are in the order in which the client sent them. With several engines or a busy front
    end they reach the queue in another order; rows are then sorted, which is counted and noted.

    Attributes:
        clock: the column that holds arrivals: `queued_ts`, when the request reached the engine's
            queue (the clock of the measured token times), or `arrival_time`, when it reached
            the front end.
        blocks_path: the workload that was sent, joined row by row for its block ids, or null:
            no request shares anything.
    """

    clock: str = "queued_ts"
    blocks_path: str | None = None

    def __post_init__(self) -> None:
        Trace.__post_init__(self)
        checks.choice("clock", self.clock, tuple(CLOCKS))

    def read(self) -> Rows:
        """All rows in the order of the chosen clock."""
        columns = ("request_id", "input_toks", "output_toks", self.clock)
        raw, kind = table.read(self.path, columns, "jsonl"), CLOCKS[self.clock]
        contents = None if self.blocks_path is None else _joined(raw, self.blocks_path)
        sent_ns = kind.nanoseconds(raw, self.clock)
        order = np.argsort(sent_ns, kind="stable").tolist()
        raw = raw.in_order(order)
        late = int((np.diff(sent_ns) < 0).sum())
        note = f"{late} rows have a {self.clock} before that of the row above: rows sorted by it"
        return Rows(
            times_ns=kind.arrivals(raw, self.clock, self.max_gap_s),
            prompt_tokens=fields.whole(raw, "input_toks", at_least=1),
            output_tokens=fields.whole(raw, "output_toks", at_least=1),
            starts_at_zero=False,
            names=fields.texts(raw, "request_id"),
            contents=None if contents is None else [contents[i] for i in order],
            notes=(note,) if late else (),
            counts={"rows_out_of_order": late} if late else {},
        )


def _contents(raw: Table) -> list[Content]:
    prompts = fields.whole(raw, "input_toks", at_least=1)
    covered = prompts + fields.whole(raw, "output_toks", at_least=1)
    ids = fields.full_blocks(raw, fields.block_ids(raw, "hash_ids"), covered, BLOCK_SIZE)
    return [TraceBlocks(of_row, BLOCK_SIZE) for of_row in ids]


def _joined(raw: Table, blocks_path: str) -> list[Content]:
    """Contents of the run's rows, after a check that both files tell of the same requests."""
    blocks = table.read(blocks_path, BLOCK_COLUMNS, "jsonl")
    if len(blocks) != len(raw):
        reason = f"has {len(blocks)} requests, {raw.file} has {len(raw)}"
        raise TraceError(blocks_path, None, f"{reason}: is it the workload of this run?")
    for column in ("input_toks", "output_toks"):
        sent = fields.whole(blocks, column, at_least=1)
        ran = fields.whole(raw, column, at_least=1)
        bad = np.flatnonzero(sent != ran)
        if bad.size:
            row = int(bad[0])
            reason = f"{column}={sent[row]}, but {ran[row]} in row {row + 1} of {raw.file}"
            raise blocks.error(row, f"{reason}: is it the workload of this run?")
    return _contents(blocks)
