"""Drive a servesim scheduler through a trace and say where it first differs.

How rows are made is the recording loop's business and is restated in README.md: a turn of it adds
the requests whose `arrive` has come, takes out those whose `abort_step` has, plans a step if
anything is unfinished, and takes in the oldest plan that is due.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from servesim.content import Tokens
from servesim.errors import ServesimError
from servesim.hardware.gpu import GPU
from servesim.policies.order.base import Order
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.records import Request, StepOutcome, StepPlan, Work
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.releases import profile_of
from servesim.scheduler.vllm.v1 import VllmV1
from servesim.scheduler.vllm.v1_scheduler import VllmV1Scheduler
from validation.conformance.trace import EOS_TOKEN, Trace

COMPARED = (
    "sched",
    "drafts",
    "preempted",
    "free_after_schedule",
    "running",
    "emitted",
    "finished",
    "free_after_update",
)
_AFTER_ALL = 2**62
_ANY_GPU = GPU("none", 80.0, 1.0, {}, 1.0)  # all limits are given, so it decides nothing


class UnsupportedTraceError(ServesimError):
    """A trace of an engine mode that servesim does not have."""


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of one trace: steps compared, steps that differ, the first difference in words.

    `stand_in` names the release and the profile where the release has none of its own.
    """

    name: str
    num_steps: int
    num_mismatches: int
    first_difference: str = ""
    stand_in: str = ""


def replay(trace: Trace) -> Result:
    """Compare every recorded step, then the final free queue and the prefix statistics.

    Raises:
        UnsupportedTraceError: naming the mode.
    """
    check_supported(trace)
    for stepwise in (True, False):  # the scheduler by itself, and as runs use it
        driver = _Driver(trace, stepwise)
        mismatches, first = 0, ""
        for row in trace.rows:
            difference = _difference(row, driver.step(row["step"]))
            if difference:
                mismatches += 1
                first = first or f"step {row['step']}: {difference}"
        for difference in driver.final_differences():
            mismatches += 1
            first = first or f"at the end: {difference}"
        if mismatches:
            break
    asked = profile_of(trace.release)
    stand_in = "" if asked.exact else f"{trace.release} by profile {asked.profile}"
    return Result(trace.name, len(trace.rows), mismatches, first, stand_in)


def check_supported(trace: Trace) -> None:
    """Refuse engine modes that servesim does not have, each by name."""
    if trace.config["policy"] not in ("fcfs", "priority"):
        raise UnsupportedTraceError(f"{trace.name}: policy {trace.config['policy']}")


def _start(trace: Trace, stepwise: bool) -> VllmV1Scheduler:
    config = trace.config
    settings = VllmV1(
        release=trace.release,
        async_scheduling=config.get("asyn", False),
        max_num_batched_tokens=config["max_tok"],
        max_num_seqs=config["max_seqs"],
        long_prefill_token_threshold=config["thr"],
        enable_chunked_prefill=config["chunked"],
        scheduler_reserve_full_isl=config["full"],
        watermark=config["wm"],
        num_speculative_tokens=config["K"],
        num_lookahead_tokens=config["la"],
        eagle_block_drop=config.get("eagle_drop", False),
    )
    order: Order = Priority() if config["policy"] == "priority" else Fcfs()
    cache = CacheSize(config["nblocks"], config["bs"], config["caching"])
    setup = EngineSetup(_ANY_GPU, cache, config["max_len"], order)
    return settings.start(setup, stepwise)


class _Driver:
    """The recording loop, with servesim's scheduler in the real one's place."""

    def __init__(self, trace: Trace, stepwise: bool) -> None:
        self._trace = trace
        self._scheduler = _start(trace, stepwise)
        # equal priority and arrival are decided by the id as a string: number requests by its rank
        rank = {name: i for i, name in enumerate(sorted(r.id for r in trace.requests))}
        self._names = sorted(rank)
        self._requests = []
        for scripted in trace.requests:
            reply = trace.reply(scripted)
            ends = [i + 1 for i, token in enumerate(reply) if token == EOS_TOKEN]
            request = Request(
                rid=rank[scripted.id],
                arrival_ps=scripted.arrive,
                prompt_tokens=len(scripted.prompt),
                output_tokens=ends[0] if ends else scripted.max_tokens,
                max_tokens=scripted.max_tokens,
                priority=scripted.priority,
                content=Tokens((*scripted.prompt, *reply)),
                name=scripted.id,
            )
            self._requests.append((scripted.arrive, request))
        self._num_added = 0
        aborts = [(r.abort_step, rank[r.id]) for r in trace.requests if r.abort_step is not None]
        self._aborts = deque(sorted(aborts, key=lambda abort: abort[0]))  # ties stay in list order
        self._outstanding: deque[tuple[StepPlan, tuple[Work, ...], dict[int, int]]] = deque()
        self._verifications: dict[int, int] = {}
        self._gone: set[int] = set()  # have ended or were given up

    def step(self, number: int) -> dict[str, Any]:
        """Run one turn of the loop and return it in the form of a trace row."""
        scheduler, outstanding = self._scheduler, self._outstanding
        self._add_and_abort(number)
        row: dict[str, Any] = {}
        busy, due = bool(scheduler.num_running or scheduler.num_waiting), True
        if busy:
            plan = scheduler.schedule(number)
            work = scheduler.full_work(plan)
            row = self._scheduled_row(plan, work)
            if work:
                outstanding.append((plan, work, self._accepted(plan)))
                due = len(outstanding) >= scheduler.pipeline_depth
            elif scheduler.pipeline_depth == 1:
                scheduler.update(plan, {})
        if due and outstanding:
            plan, work, accepted = outstanding.popleft()
            outcome = scheduler.update(plan, accepted)
            self._propose(plan)
            row.update(self._updated_row(plan, work, outcome))
        return row

    def _add_and_abort(self, number: int) -> None:
        """What happens between two steps: arrivals first, then aborts."""
        while self._num_added < len(self._requests):
            arrive, request = self._requests[self._num_added]
            if arrive > number:
                break
            self._scheduler.add(request)
            self._num_added += 1
        while self._aborts and self._aborts[0][0] <= number:
            rid = self._aborts.popleft()[1]
            self._scheduler.abort(rid)
            self._gone.add(rid)

    def final_differences(self) -> Iterator[str]:
        """What differs after the last step."""
        self._add_and_abort(_AFTER_ALL)  # the last requests may have been given up
        free, recorded = self._scheduler.free_order(), self._trace.final_free_queue
        if free is not None and recorded is not None and free != list(recorded):
            yield f"free queue is {free}, recorded {list(recorded)}"
        if self._trace.prefix_stats is not None and self._trace.config["caching"]:
            stats = self._scheduler.prefix_stats
            ours = {"queries": stats.queries, "hits": stats.hits}
            if ours != dict(self._trace.prefix_stats):
                yield f"prefix statistics are {ours}, recorded {dict(self._trace.prefix_stats)}"

    def _scheduled_row(self, plan: StepPlan, work: tuple[Work, ...]) -> dict[str, Any]:
        return {
            "sched": {self._names[w.rid]: w.num_tokens for w in work},
            "drafts": {self._names[w.rid]: w.num_drafts for w in work if w.num_drafts},
            "preempted": [self._names[rid] for rid in plan.preempted],
            "free_after_schedule": self._scheduler.num_free_blocks,
            "running": [self._names[rid] for rid in self._scheduler.running],
        }

    def _updated_row(
        self, plan: StepPlan, work: tuple[Work, ...], outcome: StepOutcome
    ) -> dict[str, Any]:
        grouped = work[: len(work) - len(plan.work)]  # each of them streams one token, if it can
        emitted = {w.rid: 1 for w in grouped if w.rid not in self._gone} | dict(outcome.emitted)
        self._gone.update(outcome.finished)
        return {
            "emitted": {self._names[rid]: count for rid, count in emitted.items()},
            "finished": [self._names[rid] for rid in outcome.finished],
            "free_after_update": self._scheduler.num_free_blocks,
        }

    def _accepted(self, plan: StepPlan) -> dict[int, int]:
        """Accepted drafts of this step, by the script."""
        accepted = {}
        for work in plan.work:
            if work.num_drafts and work.samples:
                turn = self._verifications.get(work.rid, 0)
                self._verifications[work.rid] = turn + 1
                script = self._trace.accepted.get(self._names[work.rid], [])
                accepted[work.rid] = min(work.num_drafts, script[turn] if turn < len(script) else 0)
        return accepted

    def _propose(self, plan: StepPlan) -> None:
        count = self._trace.config["K"]
        if count:
            self._scheduler.propose({w.rid: count for w in plan.work if w.samples})


def _difference(recorded: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    for key in COMPARED:
        if key not in recorded and key not in ours:
            continue
        theirs, mine = recorded.get(key), ours.get(key)
        if key == "finished" and theirs is not None and mine is not None:
            theirs, mine = sorted(theirs), sorted(mine)
        if key == "sched" and theirs is not None and mine is not None:
            theirs, mine = list(theirs.items()), list(mine.items())  # order counts
        if theirs != mine:
            return f"{key} is {_words(mine)}, recorded {_words(theirs)}"
    return ""


def _words(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return ", ".join(f"{name}:{count}" for name, count in value)
    return "absent" if value is None else str(value)
