"""Azure's public LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_{conv,code}.csv (November
2023; CC-BY-4.0; P. Patel et al., Splitwise, ISCA 2024) and the week of May 2024 in the same
columns. The traces hold lengths and arrivals, no latency and no token ids. The two files of 2023
have no reply of zero tokens; one would be refused, as in any trace.
"""

from dataclasses import dataclass

from servesim.workload.trace import fields, table
from servesim.workload.trace.base import Rows, Trace
from servesim.workload.trace.clock import Clock

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureTrace(Trace):
    """The first row used arrives at 0."""

    def read(self) -> Rows:
        """All rows."""
        raw = table.read(self.path, COLUMNS, "csv")
        when, prompt, output = COLUMNS
        return Rows(
            times_ns=Clock("iso8601", "epoch").arrivals(raw, when, self.max_gap_s),
            prompt_tokens=fields.whole(raw, prompt, at_least=1),
            output_tokens=fields.whole(raw, output, at_least=1),
            starts_at_zero=False,
        )
