"""What every workload promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from servesim.records import Request


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of one run.

    Attributes:
        requests: sorted by arrival; `rid` is the position.
        notes: what the user should know, one line each (rows scaled, source).
        counts: figures for the summary, e.g. {"duplicate_rows": 3}.
        warnings: what makes the load doubtful, one line each (duplicates).
    """

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Workload(Protocol):
    """A value whose fields are its YAML; the seed is the only other input."""

    def load(self, seed: int) -> Load:
        """The same seed gives the same requests, value for value.

        No other setting of the run (policy, cost, hardware) changes anything about them.
        """
