"""Who is preempted, by policy: small batches in which the rules disagree."""

from servesim.content import Unique
from servesim.kv.table import BlockTable
from servesim.policies.victim.base import Running
from servesim.policies.victim.fewest_generated import FewestGenerated
from servesim.policies.victim.last_admitted import LastAdmitted
from servesim.policies.victim.least_urgent import LeastUrgent
from servesim.policies.victim.most_blocks import MostBlocks
from servesim.records import Request
from servesim.scheduler.state import RequestState
from servesim.scheduler.victims import victim_position


def state(rid, *, arrived_s=0, admitted=0, generated=0, blocks=0, priority=0, tenant=""):
    made = Request(rid, arrived_s * 10**12, 10, 99, 99, priority, tenant=tenant)
    found = RequestState(made, BlockTable(rid, Unique(), 4), rid, predicted_tokens=7.0)
    found.admission_order = admitted
    found.known += generated
    found.computed = found.known - 1
    found.table.num_blocks = blocks
    return found


RUNNING = [
    state(0, arrived_s=9, admitted=3, generated=5, blocks=6, priority=1),
    state(1, arrived_s=2, admitted=1, generated=1, blocks=3, priority=0),
    state(2, arrived_s=3, admitted=2, generated=8, blocks=9, priority=1),
    state(3, arrived_s=1, admitted=4, generated=2, blocks=4, priority=0),
]


def test_each_policy_has_its_own_victim():
    assert victim_position(LastAdmitted(), RUNNING) == 3
    assert victim_position(MostBlocks(), RUNNING) == 2
    assert victim_position(FewestGenerated(), RUNNING) == 1
    assert victim_position(LeastUrgent(), RUNNING) == 0  # priority 1 like 2, arrived later


def test_among_equals_the_last_admitted_goes():
    running = [state(rid, admitted=admitted, blocks=2) for rid, admitted in enumerate((1, 3, 2))]
    for policy in (MostBlocks(), FewestGenerated(), LeastUrgent()):
        assert victim_position(policy, running) == 1


class Watching:
    def __init__(self):
        self.seen = []

    def key(self, running):
        self.seen.append(running)
        return ()


def test_a_policy_sees_what_an_engine_may_know():
    policy = Watching()
    running = state(4, arrived_s=2, admitted=3, generated=5, blocks=4, priority=6, tenant="t")
    victim_position(policy, [running])
    running.lose_blocks(1)
    victim_position(policy, [running])
    before, after = policy.seen
    assert before == Running(
        rid=4,
        arrived_s=2.0,
        admission_order=3,
        prompt_tokens=10,
        generated_tokens=5,
        computed_tokens=14,
        kv_blocks=4,
        predicted_tokens=7.0,
        priority=6,
        tenant="t",
        preempted=False,
    )
    assert after.preempted
