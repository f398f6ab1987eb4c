"""What every workload promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from servesim.records import Request
from servesim.workload.release import Release


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of one run.

    Attributes:
        requests: sorted by arrival; `rid` is the position. Where there is a release, the arrival
            is the earliest time at which the request can be sent.
        notes: what the user should know, one line each (rows scaled, source).
        counts: figures for the summary, e.g. {"duplicate_rows": 3}.
        warnings: what makes the load doubtful, one line each (duplicates).
        release: how clients wait for replies before they send; None: each request is sent when
            it arrives (open loop).
    """

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    release: Release | None = None


class Workload(Protocol):
    """A value whose fields are its YAML; the seed is the only other input."""

    def load(self, seed: int) -> Load:
        """The same seed gives the same requests, value for value.

        No other setting of the run (policy, cost, hardware) changes anything about them.
        """
