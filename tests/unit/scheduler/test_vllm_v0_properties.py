"""vLLM V0: what must hold on every load, and runs of steps that must end in time."""

import os
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_stepping import CUTS, GAPS_PS, TIMERS, Case, assert_skipping_is_exact, drive, setup, v0
from paged_stepping import cases as cases_of
from serving import MS, LinearTimer, request, serve

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.victim.last_admitted import LastAdmitted

# a full proof takes more: SERVESIM_EXAMPLES=20000 pytest <this file>
EXAMPLES = int(os.environ.get("SERVESIM_EXAMPLES", "60"))
some = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def profiles(draw, machine, *, modes=(True, False)):
    in_chunks, max_len = draw(st.sampled_from(modes)), machine["max_len"]
    tokens = draw(st.sampled_from([4, 9, 30])) if in_chunks else max_len + draw(st.integers(0, 40))
    swap = draw(st.booleans()) and (in_chunks or not isinstance(machine["order"], Priority))
    cpu_blocks = draw(st.sampled_from([0, 6, 500])) if swap else None
    seqs = draw(st.integers(1, min(tokens, 6)))
    return v0(tokens, seqs, in_chunks, cpu_blocks, machine["block_size"])


def cases(**more):
    return cases_of(profiles, **more)


@some
@given(cases())
def test_everyone_is_served_within_the_limits(case):
    drive(case)


@some
@given(cases_of(lambda machine: profiles(machine, modes=(False,))))
def test_a_step_is_whole_prompts_or_a_token_for_everyone(case):
    def each_step(scheduler, plan):
        decodes = [work.num_computed > 0 for work in plan.work]
        assert all(decodes) or not any(decodes)
        assert all(work.samples for work in plan.work)
        if any(decodes):
            assert {work.rid for work in plan.work} == set(scheduler.running)

    drive(case, each_step=each_step)


@some
@given(cases())
def test_cpu_blocks_are_conserved_and_the_swapped_come_first(case):
    def each_step(scheduler, plan):
        held = sum(scheduler._cpu_blocks.values())
        assert set(scheduler._cpu_blocks) == set(scheduler.swapped)
        assert held + scheduler.num_free_cpu_blocks == total
        if scheduler.swapped and not case.profile.enable_chunked_prefill:
            assert not any(work.num_computed == 0 for work in plan.work)

    total = case.profile.num_cpu_blocks(setup(**case.machine))
    drive(case, each_step=each_step)


@some
@given(cases_of(lambda machine: profiles(machine, modes=(False,))))
def test_the_last_admitted_is_the_engines_own_victim(case):
    # under the priority order the list is not in order of admission
    own, policys = (
        replace(case, machine={**case.machine, "order": Fcfs(), "victim": victim})
        for victim in (None, LastAdmitted())
    )
    assert drive(own).plans == drive(policys).plans


@some
@given(cases(gaps=GAPS_PS), TIMERS, CUTS)
def test_skipping_equals_stepping_bit_for_bit(case, timer, until_ps):
    assert_skipping_is_exact(case, timer, until_ps)


def skipped(profile, load, **machine):
    """The records of a run, which must be those of a run that steps."""
    assert_skipping_is_exact(Case(profile, machine, load), LinearTimer(), None)
    return serve(load, profile.start(setup(**machine)), LinearTimer())


def test_a_run_ends_where_an_urgent_arrival_evicts():
    load = [request(0, 0, output=60, priority=2), request(1, 95 * MS, priority=1)]
    run = skipped(v0(max_tokens=64, max_seqs=1), load, blocks=40, max_len=64, order=Priority())
    # steps of 10 ms: one that evicts, then the prompt
    assert run.requests[1].scheduled_ps == 110 * MS
    assert run.requests[0].preemptions == 1


def test_a_run_ends_where_somebody_can_be_swapped_in():
    load = [request(0, 0, output=8), request(1, 0, output=8)]
    run = skipped(v0(cpu_blocks=8), load, blocks=4)
    assert [r.preemptions for r in run.requests] == [0, 2]
    assert run.requests[1].recomputed_tokens == 0


def test_who_waits_behind_the_swapped_cuts_no_run():
    # after its second time out, request 1 needs nine blocks and finds eight until 0 has ended
    load = [request(0, 0, 30, 30), request(1, 0, 30, 20), request(2, 95 * MS, 1, 1)]
    run = skipped(v0(max_tokens=64, cpu_blocks=40), load, blocks=18, max_len=64)
    assert [r.preemptions for r in run.requests] == [0, 2, 0]
    assert run.requests[2].scheduled_ps == run.requests[0].last_token_ps + 10 * MS
    assert run.totals.steps - run.totals.skipped_steps < 16


@dataclass(frozen=True)
class Turning:
    """The latest first, and from 0.1 s on the earliest."""

    changes_with_time = True

    def key(self, waiting, now_s):
        return (waiting.rid if now_s >= 0.1 else -waiting.rid,)


def test_a_head_that_changes_with_time_is_looked_at_in_every_step():
    # the latest needs eight blocks and seven are free at most; then the head is one that fits
    load = [request(0, 0, 30, 20), request(1, 5 * MS, 4, 2), request(2, 5 * MS, 32, 2)]
    run = skipped(v0(max_tokens=64), load, blocks=15, max_len=54, order=Turning())
    assert run.requests[1].scheduled_ps == 100 * MS


def test_arrivals_that_find_no_room_do_not_cut_a_run():
    load = [request(0, 0, prompt=4, output=40)]
    load += [request(rid, rid * 10**10, prompt=16, output=1) for rid in range(1, 20)]
    scheduler = v0(max_tokens=64).start(setup(14, max_len=56))
    totals = serve(load, scheduler, LinearTimer()).totals
    assert totals.decisions < 35
    assert totals.steps > 55
