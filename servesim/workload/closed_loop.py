"""A closed loop: so many users, each of whom waits for a reply before sending the next request."""

from dataclasses import dataclass, field, replace

from servesim import checks
from servesim.units import seconds_to_ps
from servesim.workload.arrivals import Arrivals, Constant
from servesim.workload.base import Load
from servesim.workload.release import Users
from servesim.workload.synthetic import Synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop(Synthetic):
    """Requests drawn as in `Synthetic`, sent by users who wait for their replies.

    The vLLM and SGLang benchmarks with `--max-concurrency`: request i is the i-th to be sent, and
    its latencies count from then, without the wait in the client.

    Attributes:
        concurrency: users, each with at most one request out.
        think_time_s: from a user's last token to its next request, seconds.
        rate_rps: inf: a user who is free sends at once; else the load arrives at this rate in the
            client, and a request is sent when it has arrived and a user is free.
        arrival: shape of the arrival process, where there is a rate.
    """

    concurrency: int
    think_time_s: float = 0.0
    rate_rps: float = float("inf")
    arrival: Arrivals = field(default_factory=lambda: Constant(first_at_zero=True))

    def __post_init__(self) -> None:
        Synthetic.__post_init__(self)
        checks.whole("concurrency", self.concurrency, at_least=1)
        checks.not_negative("think_time_s", self.think_time_s)

    def load(self, seed: int) -> Load:
        """Draw the requests."""
        load = Synthetic.load(self, seed)
        return replace(
            load,
            notes=(self._note(), *load.notes),
            counts={**load.counts, "concurrency": self.concurrency},
            release=Users(self.concurrency, seconds_to_ps(self.think_time_s)),
        )

    def _note(self) -> str:
        pause = f" and {self.think_time_s:g} s" if self.think_time_s else ""
        return (
            f"closed loop: each of {self.concurrency} users sends its next request after the last "
            f"token{pause}; latencies count from then"
        )
