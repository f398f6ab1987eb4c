"""Event order at one instant: arrivals, then the end of a step, then the next plan.

SimPy orders simultaneous events by priority, then by age. Arrivals are urgent and step ends are
normal, so a request that arrives at a step boundary is seen by the plan made there, however old
either event is. Times are integers; SimPy adds them as they are.
"""

from simpy import Environment, Event
from simpy.events import URGENT


class Arrival(Event):
    """A timeout that fires before every step end of the same instant."""

    def __init__(self, env: Environment, delay_ps: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=URGENT, delay=delay_ps)
