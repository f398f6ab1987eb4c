"""Measured runs with all requests at time zero, as the steps that an engine makes of them.

Where nobody arrives later, what a step holds does not depend on how long steps take. One simulation
with steps of equal length therefore gives all steps of a run, and each cost that is tried is a sum
over them: makespan, the mean gap between tokens, the median step.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from servesim.app.run import execute
from servesim.app.setup import Setup
from servesim.cost.batch import measured
from servesim.cost.durations import Progression
from servesim.deployment import Deployment
from servesim.engine.front_end import NO_FRONT_END
from servesim.records import Decodes, StepPlan, StepTime, Work
from validation.sources.tables import Array

STEP_PS = 1  # of the simulation that records
Chunk = tuple[int, int, bool]  # tokens, tokens before them, whether it samples


@dataclass(frozen=True)
class Run:
    """The distinct steps of a run.

    Attributes:
        plans: one of each.
        steps: how many of each there are.
        gaps: how many gaps between two tokens of one request each kind is a part of, together.
        replies: gaps that a request has, over all requests.
    """

    plans: tuple[StepPlan, ...]
    steps: Array
    gaps: Array
    replies: int

    def makespan_us(self, step_us: Array) -> float:
        """Duration of all steps, given that of each kind."""
        return float(self.steps @ step_us)

    def itl_us(self, step_us: Array) -> float:
        """Mean gap between tokens; 0 where replies have one token."""
        return float(self.gaps @ step_us) / self.replies if self.replies else 0.0

    def median_us(self, step_us: Array) -> float:
        """Median step."""
        order = np.argsort(step_us)
        half = np.searchsorted(np.cumsum(self.steps[order]), self.steps.sum() / 2)
        return float(step_us[order[half]])


def recorded(setup: Setup) -> Run:
    """The steps of a setup, whatever its cost.

    Args:
        setup: whose requests all arrive at time zero.
    """
    recorder = _Recorder()
    record = execute(replace(setup, cost=recorder, front_end=NO_FRONT_END)).record
    keys = recorder.keys
    ends = [(r.first_token_ps, r.last_token_ps) for r in record.requests]
    spans = np.zeros(len(keys) + 1)
    replies = 0
    for request, (first, last) in zip(record.requests, ends, strict=True):
        if first is None or last is None:
            continue  # refused
        spans[first // STEP_PS] += 1
        spans[last // STEP_PS] -= 1
        replies += request.output_tokens - 1
    in_reply = np.cumsum(spans)[:-1]
    steps: Counter[tuple[Decodes, tuple[Chunk, ...]]] = Counter(keys)
    gaps = dict.fromkeys(steps, 0.0)
    for key, count in zip(keys, in_reply.tolist(), strict=True):
        gaps[key] += count
    return Run(
        tuple(_plan(*key) for key in steps),
        np.array(list(steps.values()), dtype=float),
        np.array(list(gaps.values())),
        replies,
    )


def _plan(decodes: Decodes, chunks: Sequence[Chunk]) -> StepPlan:
    work = tuple(Work(i, n, past, 0, samples) for i, (n, past, samples) in enumerate(chunks))
    return StepPlan(work, decodes=decodes)


class _Recorder:
    """A cost of equal steps that remembers what they hold; the timer as well."""

    def __init__(self) -> None:
        self.keys: list[tuple[Decodes, tuple[Chunk, ...]]] = []

    def bind(self, deployment: Deployment) -> "_Recorder":
        """Itself."""
        return self

    def mismatch(self, deployment: Deployment) -> str:
        """Nothing: it holds everywhere."""
        return ""

    def describe(self) -> str:
        """What it is."""
        return "steps of equal length"

    def axis_range(self, axis: str) -> tuple[float, float]:
        """Unlimited."""
        return 0.0, float("inf")

    def step_time(self, plan: StepPlan) -> StepTime:
        """One step, remembered by its decodes as a group and its chunks."""
        batch = measured(plan.work, plan.decodes, 1)
        chunks = tuple(
            (w.num_tokens, w.num_computed, w.samples)
            for w in plan.work
            if w.num_tokens != 1 + w.num_drafts
        )
        self.keys.append((Decodes(batch.seqs, batch.context, batch.longest), chunks))
        return StepTime(STEP_PS)

    def decode_run(self, decodes: Decodes, steps: int) -> Progression:
        """One step of the run, so that each is asked for."""
        self.keys.append((decodes, ()))
        return Progression(STEP_PS, 0, 1)
