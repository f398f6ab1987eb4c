"""The user's own trace: CSV, JSON Lines or Parquet with columns of any name.

What cannot be guessed must be said: the unit of time, its origin, and, where block ids are named,
the tokens per block.
"""

from dataclasses import MISSING, dataclass
from dataclasses import fields as fields_of

from servesim import checks
from servesim.content import Content, TraceBlocks
from servesim.errors import SettingError
from servesim.workload.trace import fields, table
from servesim.workload.trace.base import Rows, Trace
from servesim.workload.trace.clock import Clock
from servesim.workload.trace.fields import Ints
from servesim.workload.trace.table import Table

# vLLM's priority is any int; beyond this one is more likely a time or an id.
MOST_URGENT, LEAST_URGENT = -(10**9), 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the trace's columns; null where it has none.

    Attributes:
        arrival: when the request arrived.
        prompt_tokens: prompt length, at least 1.
        output_tokens: reply length, at least 1.
        max_tokens: the cap that the request sent along.
        priority: whole number, lower is more urgent.
        id: the trace's own name for the request.
        tenant: who sent it.
        block_ids: list of ids, one per block of tokens from the start of the prompt, equal
            where the tokens are equal.
    """

    arrival: str
    prompt_tokens: str
    output_tokens: str
    max_tokens: str | None = None
    priority: str | None = None
    id: str | None = None
    tenant: str | None = None
    block_ids: str | None = None

    def __post_init__(self) -> None:
        for field in fields_of(self):
            name = getattr(self, field.name)
            if name is not None or field.default is MISSING:
                checks.text(field.name, name)

    def named(self) -> list[str]:
        """The columns that the trace has, each once."""
        optional = (self.max_tokens, self.priority, self.id, self.tenant, self.block_ids)
        every = (self.arrival, self.prompt_tokens, self.output_tokens, *optional)
        return list(dict.fromkeys(name for name in every if name is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericTrace(Trace):
    """A trace described by its settings; rows must ascend in time.

    Attributes:
        columns: names of the columns.
        unit: of arrivals: s, ms, us, ns or iso8601.
        origin: of arrivals: epoch, monotonic or zero; see `servesim.workload.trace.clock.Clock`.
        file_format: csv, jsonl or parquet; null goes by the suffix.
        block_size: tokens per block id; must be given where block ids are.
        blocks_cover: whether the block ids stand for the `prompt` alone or for the
            `prompt_and_output`. Each row's number of ids is checked against it.
    """

    columns: Columns
    unit: str
    origin: str
    file_format: str | None = None
    block_size: int | None = None
    blocks_cover: str = "prompt"

    def __post_init__(self) -> None:
        Trace.__post_init__(self)
        if not isinstance(self.columns, Columns):
            reason = "must be servesim.workload.readers.generic.Columns (is its _target_ set?)"
            raise SettingError("columns", self.columns, reason)
        Clock(self.unit, self.origin)
        checks.choice("blocks_cover", self.blocks_cover, ("prompt", "prompt_and_output"))
        if self.block_size is not None:
            checks.whole("block_size", self.block_size, at_least=1)
        if (self.columns.block_ids is None) != (self.block_size is None):
            reason = "tokens per block id: set it together with columns.block_ids, or neither"
            raise SettingError("block_size", self.block_size, reason)

    def read(self) -> Rows:
        """All rows."""
        raw = table.read(self.path, self.columns.named(), self.file_format)
        names = self.columns
        prompts = fields.whole(raw, names.prompt_tokens, at_least=1)
        outputs = fields.whole(raw, names.output_tokens, at_least=1)
        caps = None
        if names.max_tokens is not None:
            caps = fields.whole(raw, names.max_tokens, at_least=1)
        return Rows(
            times_ns=Clock(self.unit, self.origin).arrivals(raw, names.arrival, self.max_gap_s),
            prompt_tokens=prompts,
            output_tokens=outputs,
            starts_at_zero=self.origin == "zero",
            max_tokens=caps,
            priority=self._priority(raw),
            names=None if names.id is None else fields.texts(raw, names.id),
            tenants=None if names.tenant is None else fields.texts(raw, names.tenant),
            contents=self._contents(raw, prompts, outputs),
        )

    def _priority(self, raw: Table) -> Ints | None:
        name = self.columns.priority
        if name is None:
            return None
        return fields.whole(raw, name, at_least=MOST_URGENT, at_most=LEAST_URGENT)

    def _contents(self, raw: Table, prompts: Ints, outputs: Ints) -> list[Content] | None:
        if self.columns.block_ids is None or self.block_size is None:
            return None
        covered = prompts if self.blocks_cover == "prompt" else prompts + outputs
        ids = fields.block_ids(raw, self.columns.block_ids)
        full = fields.full_blocks(raw, ids, covered, self.block_size)
        return [TraceBlocks(of_row, self.block_size) for of_row in fields.chained(full)]
