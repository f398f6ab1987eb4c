"""The recording loop: a scheduler steps through a scenario, and each step leaves a row.

How rows are made is restated in README.md.
"""

import gzip
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from validation.conformance.trace import FIRST_UNSCRIPTED_TOKEN, ScriptedRequest, Trace

# Scenarios of workloads.py end after some hundred steps, but for a few: in a small pool without the
# full-sequence gate, two prompts may take each other's blocks for ever.
MAX_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned step, as the scheduler handed it out.

    Attributes:
        tokens: by request, in the order in which they were scheduled.
        drafts: of these, drafts to verify; requests with none are left out.
        preempted: in order.
        sampling: requests whose step reaches their last known token.
        handle: whatever `update` of the same scheduler wants to get back.
    """

    tokens: Mapping[str, int]
    drafts: Mapping[str, int]
    preempted: tuple[str, ...]
    sampling: tuple[str, ...]
    handle: Any


class SteppedScheduler(Protocol):
    """A scheduler as the recording loop sees it."""

    def add(self, request: ScriptedRequest, step: int) -> None:
        """A request arrives before the step."""

    def abort(self, request_id: str) -> None:
        """The client gives up; nothing happens if the request has ended."""

    def schedule(self) -> Planned:
        """Plan the next step."""

    def update(
        self, planned: Planned, sampled: Mapping[str, list[int]]
    ) -> tuple[dict[str, int], list[str]]:
        """Take a step's tokens; streamed tokens by request, and who ended."""

    def propose(self, request_ids: Iterable[str], count: int) -> None:
        """Give each request that many drafts for its next step."""

    @property
    def has_unfinished(self) -> bool:
        """Whether any request has not ended."""

    @property
    def running(self) -> list[str]:
        """Running requests in the scheduler's order."""

    @property
    def num_free_blocks(self) -> int:
        """Free blocks, cached ones included."""

    @property
    def free_queue(self) -> list[int]:
        """Free block ids, next to be allocated first."""

    @property
    def prefix_stats(self) -> dict[str, int]:
        """Queries and hits so far, in tokens."""


def record(scenario: Trace, scheduler: SteppedScheduler) -> Trace:
    """The scenario with the rows of every step, the free queue and the prefix statistics.

    The last two are those after the last row, which is that of step MAX_STEPS - 1 at the latest.
    """
    loop = _Loop(scenario, scheduler)
    rows: list[Mapping[str, Any]] = []
    for step in range(MAX_STEPS):
        if not loop.is_pending:
            break
        row = loop.step(step)
        if row:
            rows.append({"step": step} | row)
    stats = scheduler.prefix_stats if scenario.config["caching"] else None
    free = tuple(scheduler.free_queue)
    return replace(scenario, rows=tuple(rows), final_free_queue=free, prefix_stats=stats)


def write_traces(path: Path, traces: Iterable[Trace]) -> None:
    """A `.json.gz` file that is the same, byte for byte, for the same traces."""
    lines = [json.dumps(asdict(trace), separators=(",", ":")) for trace in traces]
    text = "[" + ",\n".join(lines) + "]\n"
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


class _Loop:
    """One turn is one step: arrivals, aborts, a plan, and the update that is due."""

    def __init__(self, scenario: Trace, scheduler: SteppedScheduler) -> None:
        self._scenario = scenario
        self._scheduler = scheduler
        self._asynchronous = bool(scenario.config.get("asyn"))
        self._depth = 2 if self._asynchronous else 1
        self._to_come = deque(scenario.requests)
        self._aborts = {r.id: r.abort_step for r in scenario.requests if r.abort_step is not None}
        self._in_flight: deque[tuple[Planned, dict[str, list[int]]]] = deque()
        self._position: dict[str, int] = {}  # in the sampled tokens of each request
        self._verifications: dict[str, int] = {}

    @property
    def is_pending(self) -> bool:
        return bool(self._to_come or self._in_flight or self._scheduler.has_unfinished)

    def step(self, number: int) -> dict[str, Any]:
        """The row, without its number; empty if nothing happened."""
        scheduler, row = self._scheduler, {}
        self._arrive_and_give_up(number)
        is_busy, has_work = scheduler.has_unfinished, False
        if is_busy:
            planned = scheduler.schedule()
            has_work = bool(planned.tokens)
            row = {
                "sched": dict(planned.tokens),
                "drafts": dict(planned.drafts),
                "preempted": list(planned.preempted),
                "free_after_schedule": scheduler.num_free_blocks,
                "running": scheduler.running,
            }
            if has_work:
                self._in_flight.append((planned, self._sample(planned)))
            elif not self._asynchronous:
                scheduler.update(planned, {})
        if self._in_flight and (len(self._in_flight) >= self._depth or not has_work):
            row |= self._update()
        return row

    def _arrive_and_give_up(self, number: int) -> None:
        while self._to_come and self._to_come[0].arrive <= number:
            self._scheduler.add(self._to_come.popleft(), number)
        for request_id in [r for r, step in self._aborts.items() if step <= number]:
            del self._aborts[request_id]
            self._scheduler.abort(request_id)

    def _update(self) -> dict[str, Any]:
        """The oldest step in flight is done."""
        planned, sampled = self._in_flight.popleft()
        emitted, finished = self._scheduler.update(planned, sampled)
        drafts = self._scenario.config["K"]
        if drafts and not self._asynchronous:
            self._scheduler.propose(planned.sampling, drafts)
        free = self._scheduler.num_free_blocks
        return {"emitted": emitted, "finished": finished, "free_after_update": free}

    def _sample(self, planned: Planned) -> dict[str, list[int]]:
        """The tokens of a step, by the script: 1 + accepted for each that samples."""
        sampled: dict[str, list[int]] = {}
        for request_id in planned.sampling:
            count = 1 + self._num_accepted(request_id, planned.drafts.get(request_id, 0))
            start = self._position.get(request_id, 0)
            self._position[request_id] = start + count
            script = self._scenario.outputs.get(request_id, [])
            tokens = script[start : start + count]
            rest = range(start + len(tokens), start + count)
            sampled[request_id] = tokens + [FIRST_UNSCRIPTED_TOKEN + i for i in rest]
        return sampled

    def _num_accepted(self, request_id: str, num_drafts: int) -> int:
        if not num_drafts:
            return 0
        turn = self._verifications.get(request_id, 0)
        self._verifications[request_id] = turn + 1
        script = self._scenario.accepted.get(request_id, [])
        return min(num_drafts, script[turn] if turn < len(script) else 0)
