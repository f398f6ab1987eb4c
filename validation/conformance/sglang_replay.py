"""servesim's `sglang` beside recorded steps of the real scheduler.

`python -m validation.conformance.sglang_replay [FILE...]` prints a line per file; without a file it
takes the recorded traces of this repository.
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from servesim.content import Tokens
from servesim.errors import TraceError
from servesim.hardware.gpu import GPU
from servesim.policies.order.fcfs import Fcfs
from servesim.records import Request, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.sglang.profile import SGLang
from servesim.scheduler.sglang.scheduler import SGLangScheduler
from validation.conformance.sglang_trace import (
    Case,
    Config,
    Row,
    ScriptedRequest,
    Trace,
    difference,
    read_traces,
)

RECORDED = Path(__file__).parent / "traces" / "sglang.json.gz"
_ANY_GPU = GPU("any", 80.0, 1.0, {}, 1.0)


def replay(case: Case) -> Trace:
    """What the profile does with a case."""
    run = _Replay(case)
    todo = list(enumerate(case.requests))
    rows, step = [], 0
    while todo or run.busy:
        while todo and todo[0][1].arrive <= step:
            run.scheduler.add(_request(*todo.pop(0)))
        if run.busy:
            rows.append(run.step(step))
        step += 1
    scheduler = run.scheduler
    return Trace(case, tuple(rows), scheduler.num_free_tokens, scheduler.num_evictable_tokens)


def taken(case: Case) -> tuple[ScriptedRequest, ...]:
    """The requests of a case that the profile does not refuse."""
    scheduler = _scheduler(case.config)
    return tuple(
        scripted
        for rid, scripted in enumerate(case.requests)
        if scheduler.reject_reason(_request(rid, scripted)) is None
    )


def report(label: str, pairs: Iterable[tuple[Trace, Trace]]) -> bool:
    """Print the sums of (recorded, made) and what differs; whether nothing does."""
    cases = steps = retracted = 0
    told = []
    for recorded, made in pairs:
        cases += 1
        steps += len(recorded.rows)
        retracted += sum(len(row.retracted) for row in recorded.rows)
        found = difference(recorded, made)
        if found is not None:
            told.append(f"  {recorded.case.name}: {found}")
    print(f"{label}: {cases} cases, {steps} steps, {retracted} retractions, {len(told)} differ")
    print("".join(f"{line}\n" for line in told[:20]), end="")
    return not told


def main(arguments: list[str]) -> int:
    """0 if all steps agree, 1 if one differs, 2 on bad input."""
    agree = True
    try:
        for path in [Path(argument) for argument in arguments] or [RECORDED]:
            pairs = ((trace, replay(trace.case)) for trace in read_traces(path))
            agree &= report(path.name, pairs)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if agree else 1


def _scheduler(config: Config) -> SGLangScheduler:
    settings = asdict(config)
    cache = CacheSize(settings.pop("tokens") + 1, 1, enable_prefix_caching=True)
    setup = EngineSetup(_ANY_GPU, cache, settings.pop("max_model_len"), Fcfs())
    return SGLang(**settings).start(setup, stepwise=True)


def _request(rid: int, scripted: ScriptedRequest) -> Request:
    return Request(
        rid=rid,
        arrival_ps=scripted.arrive,
        prompt_tokens=len(scripted.prompt),
        output_tokens=len(scripted.reply),
        max_tokens=scripted.max_tokens,
        priority=scripted.priority,
        content=Tokens(scripted.prompt + scripted.reply),
    )


class _Replay:
    """The profile, driven as the engine's loop drives the scheduler."""

    def __init__(self, case: Case) -> None:
        self.scheduler = _scheduler(case.config)
        self._names = [request.id for request in case.requests]
        self._overlaps = not case.config.disable_overlap_schedule
        self._pending = StepPlan(())

    @property
    def busy(self) -> bool:
        """Whether there are requests or a step in flight."""
        scheduler = self.scheduler
        return bool(scheduler.num_running or scheduler.num_waiting or self._pending.work)

    def step(self, step: int) -> Row:
        """Plan a step; take it in or, with overlap, the one before it."""
        scheduler, names = self.scheduler, self._names
        idle = not (scheduler.num_running or scheduler.num_waiting)
        plan = StepPlan(()) if idle else scheduler.schedule(step)
        waiting = tuple(names[rid] for rid in scheduler.waiting)
        free, evictable = scheduler.num_free_tokens, scheduler.num_evictable_tokens
        ratio = scheduler.new_token_ratio
        landing, self._pending = (self._pending, plan) if self._overlaps else (plan, self._pending)
        outcome = scheduler.update(landing, {})
        return Row(
            step=step,
            batch=tuple((names[work.rid], work.num_tokens) for work in plan.work),
            retracted=tuple(names[rid] for rid in plan.preempted),
            waiting=waiting,
            free=free,
            evictable=evictable,
            ratio=ratio,
            finished=tuple(names[rid] for rid in outcome.finished),
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
