"""Does the replica keep up with the load?

Percentiles of an overloaded open-loop run depend on how long it was watched. So the second half
of the arrivals is looked at: how many requests came, and how many started service in that time.
Starts, not completions: in a stable run they lag arrivals by the queueing delay alone, whatever
the length of the replies.
"""

from dataclasses import dataclass

from servesim import checks
from servesim.metrics.base import Row
from servesim.records import RunRecord
from servesim.units import ps_to_seconds


@dataclass(frozen=True, slots=True)
class Overload:
    """Offered against sustained.

    Attributes:
        rho_limit: offered over sustained rate from which percentiles are not to be trusted.
        min_backlog: requests by which the queue must have grown to speak of overload; below it
            the difference is the noise of a random arrival process.
    """

    rho_limit: float = 0.95
    min_backlog: int = 10

    def __post_init__(self) -> None:
        checks.positive("rho_limit", self.rho_limit)
        checks.whole("min_backlog", self.min_backlog, at_least=1)

    def measure(self, run: RunRecord) -> Row:
        """`rho` is a lower bound where the queue does not grow: the replica could do more.

        No value in a closed loop, where users who wait send nothing.
        """
        taken = [r for r in run.requests if r.queued_ps is not None]
        taken.sort(key=lambda r: r.arrival_ps)  # turns of sessions are numbered otherwise
        offered, started, watched_s = 0, 0, 0.0
        if len(taken) >= 2 * self.min_backlog and not run.self_limiting:
            begin, end = taken[len(taken) // 2].arrival_ps, taken[-1].arrival_ps
            watched_s = ps_to_seconds(end - begin)
            offered = sum(begin < r.arrival_ps <= end for r in taken)
            started = sum(
                r.scheduled_ps is not None and begin < r.scheduled_ps <= end for r in taken
            )
        if not watched_s:
            return dict.fromkeys(("offered_rps", "rho", "backlog_growth_rps", "overloaded"))
        rho = offered / started if started else None
        growing = offered - started >= self.min_backlog
        return {
            "offered_rps": offered / watched_s,
            "rho": rho,
            "backlog_growth_rps": (offered - started) / watched_s,
            "overloaded": growing and (rho is None or rho >= self.rho_limit),
        }
