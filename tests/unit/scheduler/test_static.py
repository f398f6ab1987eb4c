"""Static batches by hand: nobody joins, and what has ended keeps its slots until the drain."""

import pytest
from serving import MS, LinearTimer, request, serve
from slotted import Driver, setup_of

from servesim.errors import SettingError
from servesim.metrics.kv_waste import KVWaste
from servesim.policies.victim.base import Running
from servesim.scheduler.static import Static

THREE = Static(max_num_seqs=3)
LOAD = [
    request(0, 0, 4, 3, max_tokens=4),
    request(1, 0, 6, 2),
    request(2, 0, 2, 1, max_tokens=3),
    request(3, 0, 1, 1),
]


def test_a_batch_is_served_to_its_end_before_the_next_begins():
    # 20 slots, 3 places; with prompt + max_tokens: a 8, b 8, c 5, d 2
    engine = Driver(THREE)
    engine.add("a", 4, 3, max_tokens=4)
    engine.add("b", 6, 2)
    engine.add("c", 2, 1, max_tokens=3)  # 16 + 5 > 20
    engine.add("d", 1, 1)
    assert engine.step() == ("a4 b6", 16, 6, "")
    assert engine.step() == ("a1 b1", 16, 4, "b")
    assert engine.scheduler.num_running == 1
    assert engine.step() == ("a1", 16, 10, "a")  # b's 8 slots idle, 2 of a's not reached
    assert engine.scheduler.kv_blocks_used == 0
    assert engine.step() == ("c2 d1", 7, 4, "c d")
    assert engine.scheduler.kv_blocks_used == engine.scheduler.num_waiting == 0


def test_a_place_that_has_become_free_stays_empty():
    engine = Driver(THREE)
    for name, reply in (("a", 1), ("b", 3), ("c", 2), ("d", 1)):
        engine.add(name, 1, reply)
    batches = [engine.step()[0] for _ in range(4)]
    assert batches == ["a1 b1 c1", "b1 c1", "b1", "d1"]


def test_who_arrives_while_a_batch_runs_waits_for_its_end():
    record = serve([request(0, 0, 2, 5), request(1, 11 * MS, 2, 1)], THREE.start(setup_of()))
    assert [r.scheduled_ps for r in record.requests] == [0, 50 * MS]


def test_waste_of_the_story_is_an_exact_fraction():
    # 6 + 4 + 10 + 4 of 16 + 16 + 16 + 7 slots, in steps of one length
    for stepwise in (True, False):
        record = serve(LOAD, THREE.start(setup_of(), stepwise), keep_steps=True)
        assert KVWaste().measure(record) == {"kv_waste": 24 / 55}


def test_padding_costs_time_and_is_in_no_count():
    # first iterations compute 2 × 6 and 2 × 2 tokens instead of 4 + 6 and 2 + 1
    timer = LinearTimer(per_step=0, per_token=MS)
    padded, plain = (
        serve(LOAD, Static(3, pad_to_longest=pads).start(setup_of()), timer, keep_steps=True)
        for pads in (True, False)
    )
    assert [s.duration_ps // MS for s in padded.steps] == [12, 2, 1, 4]
    assert [s.duration_ps // MS for s in plain.steps] == [10, 2, 1, 3]
    for record in (padded, plain):
        tokens = [(s.prefill_tokens, s.decode_tokens) for s in record.steps]
        assert tokens == [(10, 0), (0, 2), (0, 1), (2, 1)]
        assert record.totals.tokens == 16


def test_a_running_batch_is_skipped_over_whoever_arrives():
    engine = Driver(THREE, stepwise=False)
    assert engine.add("a", 4, 9)
    engine.step()
    assert not engine.add("b", 4, 2)
    assert engine.scheduler.steady_steps() == 8


def test_settings_that_cannot_be_are_refused_by_name():
    class LastOne:
        def key(self, running: Running):
            return (running.admission_order,)

    with pytest.raises(SettingError, match=r"policies\.victim='LastOne': memory is reserved"):
        THREE.start(setup_of(victim=LastOne()))
    with pytest.raises(SettingError, match="pad_to_longest='no'"):
        Static(pad_to_longest="no")
    with pytest.raises(SettingError, match=r"reservation='max_model_len': .*nearest: max_tokens"):
        Static(reservation="max_model_len").start(setup_of(slots=20, max_len=21))


def test_the_description_says_whether_prompts_are_padded():
    assert "prompts padded to the longest;" in THREE.describe(setup_of())
    assert "prompts not padded;" in Static(pad_to_longest=False).describe(setup_of())
