import pytest

from servesim.errors import SettingError
from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.policies.order.sjf_predicted import SjfPredicted
from servesim.records import Waiting

FIRST = Waiting(
    rid=0,
    arrived_s=0.0,
    arrival_order=0,
    prompt_tokens=100,
    generated_tokens=0,
    predicted_tokens=50.0,
    priority=0,
    tenant="",
    requeued=0,
)
SECOND = FIRST._replace(rid=1, arrived_s=1.0, arrival_order=1)


def order_of(order, *waiting, now_s=0.0):
    return [w.rid for w in sorted(waiting, key=lambda w: order.key(w, now_s))]


def test_fcfs_serves_by_arrival_and_victims_first():
    victim = SECOND._replace(rid=2, arrival_order=9, requeued=1)
    later_victim = SECOND._replace(rid=3, arrival_order=8, requeued=2)
    assert order_of(Fcfs(), SECOND, victim, FIRST, later_victim) == [3, 2, 0, 1]


def test_priority_serves_the_lowest_number_and_victims_by_theirs():
    urgent, victim = SECOND._replace(rid=2, priority=-1), FIRST._replace(rid=3, requeued=5)
    assert order_of(Priority(), FIRST, urgent) == [2, 0]
    assert Priority().key(victim, 0.0) == Priority().key(FIRST, 0.0)


def test_shortest_prompt_counts_what_must_be_computed_again():
    resumed = SECOND._replace(prompt_tokens=60, generated_tokens=50)
    assert order_of(ShortestPrompt(), resumed, FIRST) == [0, 1]
    assert order_of(ShortestPrompt(), resumed._replace(generated_tokens=39), FIRST) == [1, 0]


def test_sjf_counts_what_is_left():
    half_done = SECOND._replace(predicted_tokens=80.0, generated_tokens=40)
    assert order_of(SjfPredicted(), FIRST, half_done) == [1, 0]
    overrun = SECOND._replace(predicted_tokens=10.0, generated_tokens=40)
    assert SjfPredicted().key(overrun, 0.0) == (1.0, 0.0)  # more than predicted: due any time


def test_sjf_can_weigh_the_prompt():
    short_prompt = SECOND._replace(prompt_tokens=10, predicted_tokens=60.0)
    assert order_of(SjfPredicted(), FIRST, short_prompt) == [0, 1]
    assert order_of(SjfPredicted(prompt_weight=0.2), FIRST, short_prompt) == [1, 0]


@pytest.mark.parametrize("make", [ShortestPrompt, SjfPredicted])
def test_patience_is_strict_and_oldest_first(make):
    order = make(patience_s=10.0)
    cheap = FIRST._replace(rid=2, arrived_s=9.0, prompt_tokens=1, predicted_tokens=1.0)
    assert order_of(order, FIRST, SECOND, cheap, now_s=10.0) == [2, 0, 1]
    assert order_of(order, SECOND, FIRST, cheap, now_s=10.5) == [0, 2, 1]
    assert order_of(order, SECOND, FIRST, cheap, now_s=11.5) == [0, 1, 2]


@pytest.mark.parametrize("make", [ShortestPrompt, SjfPredicted])
def test_only_patience_depends_on_the_clock(make):
    assert not make().changes_with_time
    assert make(patience_s=1.0).changes_with_time
    assert not Fcfs().changes_with_time
    assert not Priority().changes_with_time


@pytest.mark.parametrize("make", [ShortestPrompt, SjfPredicted])
@pytest.mark.parametrize("patience_s", [0, -1.0, "5"])
def test_bad_patience_is_named(make, patience_s):
    with pytest.raises(SettingError, match=r"^patience_s="):
        make(patience_s=patience_s)


def test_bad_prompt_weight_is_named():
    with pytest.raises(SettingError, match=r"^prompt_weight=-1"):
        SjfPredicted(prompt_weight=-1)
