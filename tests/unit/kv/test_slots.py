"""Slots taken once: first fit against a bitmap, and a pool that only counts."""

from hypothesis import given
from hypothesis import strategies as st

from servesim.kv.slots import ContiguousSlots, PooledSlots, SlotRange


def test_first_fit_takes_the_lowest_hole_that_is_large_enough():
    slots = ContiguousSlots(20)
    a, b, c = slots.take(4), slots.take(3), slots.take(6)
    assert (a, b, c) == (SlotRange(0, 4), SlotRange(4, 3), SlotRange(7, 6))
    slots.give_back(a)
    slots.give_back(c)  # joins the end: holes 0-3 and 7-19
    assert slots.num_used == 3
    assert slots.take(5) == SlotRange(7, 5)
    assert slots.take(4) == SlotRange(0, 4)
    assert slots.take(9) is None
    assert slots.take(8) == SlotRange(12, 8)
    assert slots.num_used == 20


def test_scattered_slots_are_of_no_use_unless_pooled():
    for kind, fits in ((ContiguousSlots, False), (PooledSlots, True)):
        slots = kind(9)
        taken = [slots.take(3) for _ in range(3)]
        slots.give_back(taken[0])
        slots.give_back(taken[2])
        assert slots.fits(4) is fits
        assert (slots.take(4) is not None) is fits


@given(st.integers(1, 40), st.lists(st.integers(-12, 12), max_size=60))
def test_ranges_never_overlap_and_are_the_first_that_fit(capacity, moves):
    slots, pool = ContiguousSlots(capacity), PooledSlots(capacity)
    bitmap, live = "." * capacity, []
    for move in moves:
        if move > 0:
            first = bitmap.find("." * move)
            assert slots.fits(move) is (first >= 0)
            assert pool.fits(move) is (bitmap.count(".") >= move)
            taken = slots.take(move)
            assert taken == (SlotRange(first, move) if first >= 0 else None)
            if taken is not None:
                assert pool.take(move) is not None
                live.append(taken)
                bitmap = bitmap[:first] + "#" * move + bitmap[first + move :]
        elif live:
            start, size = live.pop(-move % len(live))
            slots.give_back(SlotRange(start, size))
            pool.give_back(SlotRange(start, size))
            bitmap = bitmap[:start] + "." * size + bitmap[start + size :]
        assert slots.num_used == pool.num_used == bitmap.count("#")
