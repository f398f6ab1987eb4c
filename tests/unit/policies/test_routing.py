"""Which engine gets a request, by counts that are fresh or old."""

import pytest
from serving import MS, request

from servesim.errors import SettingError
from servesim.policies.routing.base import EngineCounts
from servesim.policies.routing.least_loaded import LeastLoaded
from servesim.policies.routing.round_robin import RoundRobin

SOMEBODY = request(0)


def routed(router, *times_ms):
    return [router.route(SOMEBODY, time_ms * MS) for time_ms in times_ms]


def test_the_fewest_requests_win_and_those_that_wait_count_fourfold():
    router = LeastLoaded().start(2)
    router.observe(0, [EngineCounts(0, 10), EngineCounts(1, 5)])
    # at 100 ms these are published: 10 against 9, then 10 against 13, 14 against 13
    assert routed(router, 100, 110, 120) == [1, 0, 1]


def test_the_first_of_equals_gets_it():
    assert routed(LeastLoaded().start(3), 0, 1, 2, 3) == [0, 1, 2, 0]


def test_what_happened_since_the_last_publication_is_not_known():
    router = LeastLoaded().start(2)
    router.observe(50 * MS, [EngineCounts(0, 5), EngineCounts(0, 0)])
    assert routed(router, 60, 99) == [0, 1]  # the counts of an idle pair, and what was sent out
    assert routed(router, 100) == [1]  # 5 + 4 for what waits against 4


def test_a_publication_holds_what_was_so_at_its_time():
    router = LeastLoaded().start(2)
    router.observe(50 * MS, [EngineCounts(0, 5), EngineCounts(0, 0)])
    router.observe(150 * MS, [EngineCounts(0, 0), EngineCounts(0, 9)])
    assert routed(router, 160, 200) == [1, 0]


def test_fresh_counts_are_used_at_once():
    router = LeastLoaded(published_every_s=0.0).start(2)
    router.observe(50 * MS, [EngineCounts(0, 5), EngineCounts(0, 0)])
    assert routed(router, 50, 50, 50) == [1, 1, 0]


def test_in_turn():
    assert routed(RoundRobin().start(3), 0, 0, 5, 9) == [0, 1, 2, 0]


@pytest.mark.parametrize("field", ["waiting_weight", "published_every_s"])
def test_settings_are_not_negative(field):
    with pytest.raises(SettingError, match=f"{field}=-1"):
        LeastLoaded(**{field: -1})
