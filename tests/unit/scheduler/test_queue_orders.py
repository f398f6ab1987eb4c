"""A policy's key decides who is next; everything else stays the engine's."""

from dataclasses import dataclass

from stepping import Stepper

from servesim.policies.order.fcfs import Fcfs
from servesim.policies.order.priority import Priority
from servesim.policies.order.shortest_prompt import ShortestPrompt
from servesim.policies.order.sjf_predicted import SjfPredicted
from servesim.records import Waiting


def served(order, *, now_s=0):
    """Three requests that arrived one second apart; who starts in which order."""
    engine = Stepper(order=order, max_num_seqs=1)
    engine.add("a", 9, 1, priority=1, predicted=50.0)
    engine.add("b", 3, 1, priority=2, predicted=70.0, arrived_s=1)
    engine.add("c", 6, 1, priority=0, predicted=10.0, arrived_s=2)
    return [engine.step(now_s=now_s).batch for _ in range(3)]


def test_orders_decide_who_starts():
    assert served(Fcfs()) == ["a9", "b3", "c6"]
    assert served(Priority()) == ["c6", "a9", "b3"]
    assert served(ShortestPrompt()) == ["b3", "c6", "a9"]
    assert served(SjfPredicted()) == ["c6", "a9", "b3"]
    assert served(SjfPredicted(prompt_weight=10.0)) == ["c6", "b3", "a9"]  # 70, 100, 140


def test_patience_moves_the_old_to_the_front_as_time_passes():
    assert served(ShortestPrompt(patience_s=10.0), now_s=5) == ["b3", "c6", "a9"]
    assert served(ShortestPrompt(patience_s=10.0), now_s=11) == ["a9", "b3", "c6"]
    assert served(SjfPredicted(patience_s=10.0), now_s=20) == ["a9", "b3", "c6"]


def test_equal_keys_go_by_arrival_and_then_by_number():
    engine = Stepper(order=Priority(), max_num_seqs=1)
    engine.add("late", 3, 1, arrived_s=2)
    engine.add("x", 3, 1, arrived_s=1)
    engine.add("y", 3, 1, arrived_s=1)
    assert engine.steps(3) == ["x3", "y3", "late3"]


def crowded(order):
    """b, 8 + 5 known tokens, has just been preempted; a runs on; only two may run at once."""
    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24, order=order)
    engine.add("a", 8, 9)
    engine.add("b", 8, 9)
    engine.steps(5)
    engine.add("c", 4, 1, arrived_s=1)
    assert engine.step().preempted == "b"
    return engine


def test_under_fcfs_the_preempted_goes_first():
    assert crowded(Fcfs()).step().batch == "a1"  # b at the head does not fit, c must wait


def test_the_queues_shortcut_for_fcfs_is_the_key_of_fcfs():
    class ByKey(Fcfs):  # what it is asked for, and not what the queue knows of it
        pass

    batches = []
    for order in (Fcfs(), ByKey()):
        engine = Stepper(blocks=7, max_num_seqs=2, max_len=24, order=order)
        for name in "abcd":
            engine.add(name, 8, 9)
        batches.append([row[:2] for row in engine.run_out()])
    assert batches[0] == batches[1]
    assert [preempted for _, preempted in batches[0]].count("b") > 0


def test_under_another_order_the_preempted_competes_by_its_key():
    assert crowded(ShortestPrompt()).step().batch == "a1 c4"


def test_an_order_sees_no_true_length_and_only_facts():
    seen: list[Waiting] = []

    @dataclass(frozen=True)
    class Spy:
        changes_with_time = False

        def key(self, waiting, now_s):
            seen.append(waiting)
            return (0.0,)

    engine = Stepper(blocks=7, max_num_seqs=2, max_len=24, order=Spy())
    engine.add("a", 8, 9, predicted=3.5, priority=2)
    engine.add("b", 8, 9, arrived_s=1)
    engine.run_out()
    assert [w.arrival_order for w in seen] == [0, 1, 1]  # two arrivals, one preemption
    new, preempted = seen[0], seen[2]
    assert (new.predicted_tokens, new.priority, new.generated_tokens) == (3.5, 2, 0)
    assert (preempted.rid, preempted.generated_tokens, preempted.requeued) == (1, 5, 1)
    assert "output_tokens" not in Waiting._fields
    assert "max_tokens" not in Waiting._fields


def test_a_key_that_never_changes_is_asked_for_once():
    calls = []

    @dataclass(frozen=True)
    class Counting:
        changes_with_time: bool

        def key(self, waiting, now_s):
            calls.append(now_s)
            return (float(waiting.rid),)

    for changes, expected in ((False, 3), (True, 3 + 3 + 2)):
        calls.clear()
        engine = Stepper(order=Counting(changes), max_num_seqs=1)
        for name in "abc":
            engine.add(name, 3, 1)
        for second in range(3):
            engine.step(now_s=second)
        assert len(calls) == expected  # a queue of one needs no order
