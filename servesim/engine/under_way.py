"""What a replica has under way: one step, or a run of steady ones."""

from dataclasses import dataclass

from servesim.cost.durations import Durations
from servesim.records import Decodes, StepPlan, StepTime


@dataclass(slots=True)
class Run:
    """Steady steps under way.

    Attributes:
        start_ps: when the first one began.
        decodes: its batch.
        durations: how long they take.
        steps: how many will be taken.
        blocks_used: KV blocks held before the first one.
        waiting: requests that waited then.
        slots_unused: slots of held blocks without a token then; 0 where no step is recorded.
        arrivals_ps: when further ones arrived that changed nothing.
    """

    start_ps: int
    decodes: Decodes
    durations: Durations
    steps: int
    blocks_used: int
    waiting: int
    slots_unused: int
    arrivals_ps: list[int]


@dataclass(slots=True)
class Step:
    """A step under way: when it began, its plan and time, requests waiting and blocks held.

    `slots_unused` are those of the held blocks without a token, 0 where no step is recorded.
    """

    start_ps: int
    plan: StepPlan
    time: StepTime
    waiting: int
    blocks_used: int
    slots_unused: int
