"""vLLM V0 and Sarathi-Serve driven by hand, and what must hold for both on every load."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from serving import ANY_GPU, MS, LinearTimer, request, serve

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.policies.victim.fewest_generated import FewestGenerated
from servesim.policies.victim.last_admitted import LastAdmitted
from servesim.policies.victim.least_urgent import LeastUrgent
from servesim.policies.victim.most_blocks import MostBlocks
from servesim.records import Request, StepPlan
from servesim.scheduler.base import CacheSize, EngineSetup
from servesim.scheduler.vllm.v0 import VllmV0

ORDERS = (Fcfs(), Priority(), ShortestPrompt(), ShortestPrompt(patience_s=0.05))
VICTIMS = (None, None, LastAdmitted(), MostBlocks(), FewestGenerated(), LeastUrgent())
GIB = 2**30


def setup(blocks, block_size=4, max_len=32, order=None, victim=None):
    """`blocks` can be held; a token takes a byte, so a CPU block takes `block_size` bytes."""
    cache = CacheSize(blocks + 1, block_size, True, kv_bytes_per_token=1)
    return EngineSetup(ANY_GPU, cache, max_len, order or Fcfs(), victim)


def v0(max_tokens=32, max_seqs=4, chunked=False, cpu_blocks=None, block_size=4):
    """vLLM V0; with `cpu_blocks`, its victims are swapped."""
    swap = {}
    if cpu_blocks is not None:
        swap = {"preemption_mode": "swap", "swap_space_gib": cpu_blocks * block_size / GIB}
    return VllmV0(max_tokens, max_seqs, chunked, **swap)


class Stepper:
    """Names for requests, a line per step: the batch, `>` who ended, `!` who was preempted."""

    def __init__(self, profile, **machine):
        self.scheduler = profile.start(setup(**machine), stepwise=True)
        self.names = []

    def add(self, name, prompt, output, *, arrived=0, priority=0):
        made = Request(len(self.names), arrived, prompt, output, output, priority)
        assert self.scheduler.reject_reason(made) is None
        self.names.append(name)
        self.scheduler.add(made)

    def step(self):
        plan = self.scheduler.schedule(0)
        self.plan = plan
        outcome = self.scheduler.update(plan, {})
        words = [f"{self.names[work.rid]}{work.num_tokens}" for work in plan.work]
        words += [f">{self.names[rid]}" for rid in outcome.finished]
        words += [f"!{self.names[rid]}" for rid in plan.preempted]
        return " ".join(words)

    def steps(self, count):
        return [self.step() for _ in range(count)]

    def running(self):
        return " ".join(self.names[rid] for rid in self.scheduler.running)


@dataclass(frozen=True)
class Case:
    """A profile, its machine and requests; `arrival_ps` is the step before which one comes."""

    profile: object
    machine: dict
    requests: tuple[Request, ...]


@dataclass
class Run:
    plans: list[StepPlan] = field(default_factory=list)
    replies: dict[int, int] = field(default_factory=dict)
    rejected: list[int] = field(default_factory=list)


@st.composite
def machines(draw, *, victims=VICTIMS):
    """Room for the longest request with little or nothing to spare; a pool with a watermark."""
    block_size, max_len = draw(st.sampled_from([1, 3, 4, 8])), draw(st.integers(16, 48))
    blocks = -(-max_len // block_size) + draw(st.sampled_from([0, 1, 2, 4, 100]))
    return {
        "blocks": blocks,
        "block_size": block_size,
        "max_len": max_len,
        "order": draw(st.sampled_from(ORDERS)),
        "victim": draw(st.sampled_from(victims)),
    }


@st.composite
def loads(draw, max_len, *, gaps=(0, 0, 1, 3)):
    requests, arrival = [], 0
    for rid in range(draw(st.integers(1, 12))):
        arrival += draw(st.sampled_from(gaps))
        prompt = draw(st.integers(1, max_len - 1))
        output = draw(st.integers(1, max_len - prompt))
        cap = draw(st.sampled_from([output, max(1, output - 3), max_len - prompt]))
        priority = draw(st.integers(0, 2))
        requests.append(request(rid, arrival, prompt, output, max_tokens=cap, priority=priority))
    return tuple(requests)


@st.composite
def cases(draw, profiles, *, victims=VICTIMS, **load):
    machine = draw(machines(victims=victims))
    profile = draw(profiles(machine))
    return Case(profile, machine, draw(loads(machine["max_len"], **load)))


def no_check(scheduler, plan):
    pass


def drive(case, *, each_step=no_check):
    """Step to the end; everyone has their reply and every block is back."""
    scheduler, run = case.profile.start(setup(**case.machine), stepwise=True), Run()
    todo, number = list(case.requests), 0
    while todo or scheduler.num_running or scheduler.num_waiting:
        while todo and todo[0].arrival_ps <= number:
            due = todo.pop(0)
            if scheduler.reject_reason(due) is None:
                scheduler.add(due)
            else:
                run.rejected.append(due.rid)
        plan = scheduler.schedule(number)
        check(scheduler, plan)
        each_step(scheduler, plan)
        for emission in scheduler.update(plan, {}).emitted:
            run.replies[emission.rid] = run.replies.get(emission.rid, 0) + emission.num_tokens
        run.plans.append(plan)
        number += 1
        assert number < 5000, "the engine makes no progress"
    assert scheduler.kv_blocks_used == 0
    assert run.replies == {
        r.rid: min(r.output_tokens, r.max_tokens)
        for r in case.requests
        if r.rid not in run.rejected
    }
    return run


def check(scheduler, plan):
    """Budgets and blocks of one planned step."""
    rids = [work.rid for work in plan.work]
    assert len(set(rids)) == len(rids)
    assert set(rids) <= set(scheduler.running)
    assert plan.num_tokens <= scheduler._max_tokens
    assert scheduler.num_running <= scheduler._max_seqs
    held = [state.table.num_blocks for state in scheduler._running]
    assert scheduler.kv_blocks_used == sum(held)
    assert scheduler.kv_blocks_used + scheduler.num_free_blocks == scheduler.kv_blocks
    computed = [state.computed for state in scheduler._running]
    slots = [blocks * scheduler.block_size for blocks in held]
    assert all(n <= room for n, room in zip(computed, slots, strict=True))
    assert scheduler.kv_slots_unused == sum(slots) - sum(computed)
    for work in plan.work:
        assert work.num_tokens >= 1


def assert_skipping_is_exact(case, timer, until_ps):
    """The records of a run that skips and of one that steps are the same."""
    runs = []
    for stepwise in (True, False):
        scheduler = case.profile.start(setup(**case.machine), stepwise)
        runs.append(serve(case.requests, scheduler, timer, keep_steps=True, until_ps=until_ps))
    stepped, skipped = runs
    assert skipped.requests == stepped.requests
    assert skipped.steps == stepped.steps
    assert skipped.totals == stepped.totals
    assert skipped.itl_ps == stepped.itl_ps
    assert skipped.end_ps == stepped.end_ps
    assert stepped.totals.skipped_steps == 0


TIMERS = st.sampled_from([LinearTimer(), LinearTimer(5 * MS, MS // 7)])
# whole steps too, so that arrivals fall on step boundaries
GAPS_PS = (0, 0, MS, 7 * MS + 1, 10 * MS, 33 * MS, 400 * MS)
CUTS = st.sampled_from([None, None, 60 * MS, 200 * MS])
