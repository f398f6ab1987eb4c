"""Orca by hand: who joins when, what is reserved, what of it stays unused."""

import pytest
from serving import request, serve
from slotted import Driver, setup_of

from servesim.errors import ServesimError, SettingError
from servesim.metrics.kv_waste import KVWaste
from servesim.scheduler.orca import Orca
from servesim.scheduler.reserving import RESERVATIONS, reserved_slots

THREE = Orca(max_num_seqs=3)


class LastOne:
    """Some victim policy."""

    def key(self, running):
        return (running.admission_order,)


def test_whole_prompts_join_decodes_first_come_first_served():
    # 20 slots, 3 seats; with prompt + max_tokens: a 8, b 8, c 5, d 2
    engine = Driver(THREE)
    engine.add("a", 4, 3, max_tokens=4)
    engine.add("b", 6, 2)
    engine.add("c", 2, 1, max_tokens=3)  # 16 + 5 > 20
    engine.add("d", 1, 1)  # would fit, but nobody overtakes
    assert engine.step() == ("a4 b6", 16, 6, "")
    assert engine.step() == ("a1 b1", 16, 4, "b")
    assert engine.step() == ("a1 c2 d1", 15, 6, "a c d")
    assert engine.scheduler.kv_blocks_used == engine.scheduler.num_running == 0


def test_a_fourth_waits_for_a_seat():
    engine = Driver(THREE)
    for name in "abcd":
        engine.add(name, 1, 2)
    assert engine.step()[0] == "a1 b1 c1"
    assert engine.step() == ("a1 b1 c1", 9, 3, "a b c")
    assert engine.step()[0] == "d1"


def test_waste_of_the_story_is_an_exact_fraction():
    # the first story: 6 + 4 + 6 of 16 + 16 + 15 slots, in steps of one length
    requests = [
        request(0, 0, 4, 3, max_tokens=4),
        request(1, 0, 6, 2),
        request(2, 0, 2, 1, max_tokens=3),
        request(3, 0, 1, 1),
    ]
    for stepwise in (True, False):
        record = serve(requests, THREE.start(setup_of(), stepwise), keep_steps=True)
        assert KVWaste().measure(record) == {"kv_waste": 16 / 47}


@pytest.mark.parametrize(
    ("reservation", "slots"),
    [("max_model_len", 2048), ("max_tokens", 110), ("pow2", 10 + 32), ("oracle", 10 + 25)],
)
def test_reservations_of_the_paper(reservation, slots):
    # Orca (Pow2): a reply of 25 tokens reserves 32
    assert reserved_slots(reservation, request(0, 0, 10, 25, max_tokens=100), 2048) == slots


def test_a_cap_ends_the_reply_and_max_model_len_the_reservation():
    capped = request(0, 0, 10, 25, max_tokens=16)
    assert reserved_slots("oracle", capped, 2048) == 26
    assert reserved_slots("pow2", capped, 2048) == 26
    assert reserved_slots("pow2", request(0, 0, 10, 25), 40) == 40
    replies = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 32: 32, 33: 64}
    for reply, slots in replies.items():
        assert reserved_slots("pow2", request(0, 0, 1, reply), 2048) == 1 + slots


def test_the_last_token_gets_no_kv_so_an_oracle_leaves_one_slot():
    engine = Driver(Orca(max_num_seqs=1, reservation="oracle"))
    engine.add("a", 4, 3, max_tokens=9)
    assert [engine.step()[1:3] for _ in range(3)] == [(7, 3), (7, 2), (7, 1)]


@pytest.mark.parametrize(("contiguous", "second"), [(True, "y1"), (False, "y1 w8")])
def test_slots_that_do_not_lie_side_by_side_are_of_no_use(contiguous, second):
    # x 0-5, y 6-11, z 12-17; x and z end: 6 and 8 free slots, and w needs 9
    engine = Driver(Orca(max_num_seqs=4, contiguous=contiguous))
    engine.add("x", 5, 1)
    engine.add("y", 3, 3)
    engine.add("z", 5, 1)
    engine.add("w", 8, 1)
    assert engine.step() == ("x5 y3 z5", 18, 5, "x z")
    assert engine.step()[0] == second


def test_a_token_limit_holds_whole_prompts_back():
    engine = Driver(Orca(max_num_seqs=3, max_num_batched_tokens=6))
    engine.add("a", 4, 3)
    engine.add("b", 3, 1)
    assert engine.step()[0] == "a4"  # 4 + 3 > 6
    assert engine.step()[0] == "a1 b3"
    too_long = engine.scheduler.reject_reason(request(9, 0, 7, 1))
    assert too_long == "prompt = 7 > max_num_batched_tokens 6"


def test_what_could_never_be_reserved_is_refused_at_the_door():
    pow2 = Driver(Orca(reservation="pow2"), max_len=40).scheduler
    reason = "slots to reserve = 26 > 20 slots of KV cache"
    assert pow2.reject_reason(request(0, 0, 10, 9)) == reason
    oracle = Driver(Orca(reservation="oracle"), max_len=40).scheduler
    assert oracle.reject_reason(request(0, 0, 10, 9)) is None
    assert oracle.reject_reason(request(0, 0, 10, 31)).startswith("prompt + max_tokens = 41 >")


def test_an_arrival_that_cannot_join_before_somebody_ends_cuts_no_run():
    engine = Driver(Orca(max_num_seqs=2), stepwise=False)
    assert engine.add("a", 4, 9)
    engine.step()
    assert engine.add("b", 4, 2)  # there is a seat and there are slots
    engine.step()
    assert not engine.add("c", 1, 1)  # no seat
    assert engine.scheduler.steady_steps() == 1  # then b ends


def test_settings_that_cannot_be_are_refused_by_name():
    with pytest.raises(ServesimError, match=r"reservation 'pow3'.*did you mean 'pow2'"):
        Orca(reservation="pow3")
    with pytest.raises(SettingError, match="max_num_seqs=0"):
        Orca(max_num_seqs=0)
    with pytest.raises(SettingError, match="contiguous='yes'"):
        Orca(contiguous="yes")
    with pytest.raises(SettingError, match=r"max_num_batched_tokens=2: .*nearest: 3"):
        Orca(max_num_seqs=3, max_num_batched_tokens=2).start(setup_of())
    with pytest.raises(SettingError, match=r"reservation='max_model_len': .*nearest: max_tokens"):
        Orca(reservation="max_model_len").start(setup_of(slots=20, max_len=21))


def test_a_victim_policy_has_nothing_to_choose():
    with pytest.raises(SettingError, match=r"policies\.victim='LastOne': memory is reserved"):
        THREE.start(setup_of(victim=LastOne()))


@pytest.mark.parametrize("reservation", RESERVATIONS)
def test_the_description_tells_the_reservation_and_the_limits(reservation):
    line = Orca(max_num_seqs=3, reservation=reservation).describe(setup_of())
    assert "max_num_seqs 3, 20 token slots, max_model_len 20" in line
    assert "contiguous, first fit" in line
    assert ("baseline" in line) is (reservation in ("pow2", "oracle"))
