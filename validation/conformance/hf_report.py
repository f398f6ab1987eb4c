"""What comparisons with transformers continuous batching have found, in sums and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(slots=True)
class Tally:
    """Sums over runs: what was compared and how often what was seen.

    Attributes:
        steps: steps of the real engine.
        mismatches: of them, those in which servesim differs, in either replay.
        preemptions: requests that lost their pages.
        hits: admissions that found a cached prefix.
        evictions: steps that threw all cached pages away.
        overtaken: steps in which a request got in past one that had waited longer.
        skipped: steps not planned one by one in the second replay.
    """

    steps: int = 0
    mismatches: int = 0
    preemptions: int = 0
    hits: int = 0
    evictions: int = 0
    overtaken: int = 0
    skipped: int = 0

    def add(self, other: "Tally") -> None:
        """Count another run's in."""
        for field in fields(self):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def describe(self) -> str:
        """The sums in one line."""
        return (
            f"{self.steps} steps, {self.mismatches} mismatches; {self.preemptions} preemptions, "
            f"{self.hits} prefix hits, {self.evictions} evictions of all cached pages, "
            f"{self.overtaken} steps with overtaking, {self.skipped} steps skipped"
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one run: its sums, and the first difference in words."""

    name: str
    tally: Tally
    first_difference: str


def report(what: str, results: Sequence[Result]) -> bool:
    """Print the sums and the first difference of each run that has one; whether there is one."""
    total = Tally()
    for result in results:
        total.add(result.tally)
    print(f"{what}: {len(results)} runs, {total.describe()}")
    for result in results:
        if result.first_difference:
            print(f"  {result.name}: {result.first_difference}")
    return any(result.first_difference for result in results)
