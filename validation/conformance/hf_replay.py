"""servesim's `hf` beside a recorded run of transformers continuous batching, step by step.

`python -m validation.conformance.hf_replay FILE...` compares the runs of files. Each is replayed
twice: every step planned one by one, and with runs of steady steps taken in one go, arrivals in
the middle of them included.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from servesim.content import Tokens
from servesim.errors import ServesimError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.records import Request, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.hf.profile import HFContinuousBatching
from servesim.scheduler.hf.scheduler import HFScheduler
from validation.conformance.hf_report import Result, Tally, report
from validation.conformance.hf_trace import Config, Row, Trace, read

_ANY_GPU = GPU("none", 80.0, 1.0, {}, 1.0)  # all limits are given, so it decides nothing


def replay(trace: Trace) -> Result:
    """Compare every recorded step, then once more with steps skipped."""
    tally = Tally(steps=len(trace.rows))
    differences = []
    stepping = _Replay(trace, stepwise=True)
    cached_before = 0
    for row in trace.rows:
        ours = stepping.step(row.step)
        differences += _differences(row, ours)
        tally.mismatches += ours != row
        tally.preemptions += len(row.preempted)
        tally.evictions += cached_before > 0 and row.cached == 0
        entered = {rid for rid, _, _ in row.batch} - stepping.active_before
        tally.overtaken += any(rid > min(row.waiting, default=rid) for rid in entered)
        cached_before = row.cached_after
    tally.hits = stepping.num_hits
    skipping = _Replay(trace, stepwise=False)
    for difference in skipping.skip_through():
        tally.mismatches += 1
        differences.append(f"skipping, {difference}")
    tally.skipped = skipping.num_skipped
    return Result(trace.name, tally, differences[0] if differences else "")


def _start(config: Config, stepwise: bool) -> HFScheduler:
    settings = HFContinuousBatching(
        scheduler_type=config.scheduler_type,
        page_size=config.page_size,
        max_batch_tokens=config.max_batch_tokens,
        max_requests_per_batch=config.max_requests_per_batch,
        max_blocks_per_request=config.max_blocks_per_request,
        safety_margin=config.safety_margin,
    )
    slots = config.num_pages * config.page_size
    cache = CacheSize(slots + 1, 1, config.allow_block_sharing)
    return settings.start(EngineSetup(_ANY_GPU, cache, slots + 1, Fcfs()), stepwise)


class _Replay:
    """servesim's scheduler in the real one's place."""

    def __init__(self, trace: Trace, stepwise: bool) -> None:
        self._rows = trace.rows
        self._scheduler = _start(trace.config, stepwise)
        self._requests = [
            Request(
                rid=rid,
                arrival_ps=scripted.arrive,
                prompt_tokens=scripted.prompt,
                output_tokens=scripted.output,
                max_tokens=scripted.max_tokens,
                content=Tokens(tuple(scripted.tokens(rid)[: scripted.num_shared])),
            )
            for rid, scripted in enumerate(trace.requests)
        ]
        self._num_added = self.num_hits = self.num_skipped = 0
        self.active_before: set[int] = set()

    def step(self, number: int) -> Row:
        """Plan and update one step; what it did."""
        scheduler = self._scheduler
        self._add_arrived(number)
        self.active_before = set(scheduler.running)
        plan = scheduler.schedule(number)
        self.num_hits += sum(a.cached_tokens > 0 for a in plan.admitted)
        scheduled = self._scheduled(number, plan)
        finished = scheduler.update(plan, {}).finished
        return scheduled._replace(
            finished=tuple(sorted(finished)),
            free_after=scheduler.num_free_pages,
            cached_after=scheduler.num_cached_pages,
        )

    def skip_through(self) -> Iterator[str]:
        """Go through all rows with runs of steady steps; what differs."""
        scheduler, rows, i = self._scheduler, self._rows, 0
        while i < len(rows):
            self._add_arrived(rows[i].step)
            steps = scheduler.steady_steps()
            if not steps:
                yield from _differences(rows[i], self.step(rows[i].step))
                i += 1
                continue
            active = scheduler.running
            steps = self._cut(rows[i].step, steps)
            taken = scheduler.advance(steps)
            finished = scheduler.end_run().finished
            yield from self._run_differences(rows[i : i + steps], active, taken, finished)
            self.num_skipped += steps
            i += steps

    def _cut(self, first: int, steps: int) -> int:
        """Let requests arrive in the middle of a run; how many of its steps are taken."""
        for number in range(first + 1, first + steps):
            if self._add_arrived(number):
                return number - first
        return steps

    def _add_arrived(self, number: int) -> bool:
        """Add whoever has come by this step; whether a run of steady steps must end."""
        must_end = False
        while self._num_added < len(self._requests):
            request = self._requests[self._num_added]
            if request.arrival_ps > number:
                break
            must_end |= self._scheduler.add(request)
            self._num_added += 1
        return must_end

    def _scheduled(self, number: int, plan: StepPlan) -> Row:
        scheduler = self._scheduler
        return Row(
            step=number,
            batch=tuple((w.rid, w.num_tokens, w.num_computed) for w in plan.work),
            preempted=plan.preempted,
            active=scheduler.running,
            waiting=scheduler.waiting,
            free=scheduler.num_free_pages,
            cached=scheduler.num_cached_pages,
            finished=(),
            free_after=0,
            cached_after=0,
        )

    def _run_differences(
        self,
        rows: Sequence[Row],
        active: tuple[int, ...],
        taken: list[int],
        finished: tuple[int, ...],
    ) -> Iterator[str]:
        """A run of steps beside the real engine's rows."""
        scheduler, last = self._scheduler, rows[-1]
        if len(rows) < len(taken):
            yield f"step {last.step}: the run goes on beyond the last recorded step"
            return
        free = rows[0].free + taken[0]
        for row, pages in zip(rows, taken, strict=True):
            free -= pages
            everyone = sorted((rid, 1) for rid in active)
            if sorted((rid, n) for rid, n, _ in row.batch) != everyone or row.preempted:
                yield f"step {row.step}: the run has {active}, recorded {row.batch}"
            if row.free != free or (row.finished and row is not last):
                yield f"step {row.step}: free is {free}, recorded {row.free}"
        end = (scheduler.num_free_pages, scheduler.num_cached_pages, tuple(sorted(finished)))
        recorded = (last.free_after, last.cached_after, last.finished)
        if end != recorded:
            yield f"step {last.step}: free, cached, finished are {end}, recorded {recorded}"


def _differences(recorded: Row, ours: Row) -> list[str]:
    """The first field that differs, in words, or nothing."""
    for name, theirs, mine in zip(Row._fields, recorded, ours, strict=True):
        if theirs != mine:
            return [f"step {recorded.step}: {name} is {mine}, recorded {theirs}"]
    return []


def main(arguments: list[str]) -> int:
    """Print a line per file; 0 if all runs agree, 1 if one differs, 2 on bad input."""
    if not arguments:
        print("usage: python -m validation.conformance.hf_replay FILE...", file=sys.stderr)
        return 2
    differing = False
    for argument in arguments:
        try:
            results = [replay(trace) for trace in read(Path(argument))]
        except ServesimError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        differing |= report(argument, results)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
