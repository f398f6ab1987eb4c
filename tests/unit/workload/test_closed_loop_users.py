"""Users who wait: the requests of `Synthetic`, and a release."""

import math

import pytest

from servesim.errors import SettingError
from servesim.workload.arrivals import Constant
from servesim.workload.closed_loop import ClosedLoop
from servesim.workload.lengths import Fixed, Uniform
from servesim.workload.release import Users
from servesim.workload.synthetic import Synthetic

LENGTHS = {"prompt": Uniform(10, 20), "output": Fixed(5)}


def test_the_requests_are_those_of_an_open_loop_with_all_at_time_0():
    closed = ClosedLoop(num_requests=50, concurrency=4, think_time_s=0.25, **LENGTHS).load(3)
    at_once = Synthetic(num_requests=50, rate_rps=math.inf, arrival=Constant(), **LENGTHS).load(3)
    assert closed.requests == at_once.requests
    assert closed.release == Users(4, 25 * 10**10)
    assert closed.counts == {"concurrency": 4}
    assert closed.notes[0].startswith("closed loop: each of 4 users sends its next request after")
    assert "and 0.25 s" in closed.notes[0]
    assert at_once.release is None


def test_a_rate_is_when_requests_come_to_the_client():
    load = ClosedLoop(num_requests=3, concurrency=1, rate_rps=2.0, **LENGTHS).load(1)
    assert [r.arrival_ps / 1e12 for r in load.requests] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"concurrency": 0}, "concurrency=0: must be 1 or more"),
        ({"concurrency": 2.5}, "concurrency=2.5: must be a whole number"),
        ({"think_time_s": -1}, "think_time_s=-1: must be 0 or more"),
        ({"num_requests": 0}, "num_requests=0: must be 1 or more"),
        ({"rate_rps": 0}, "rate_rps=0: must be above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, line):
    with pytest.raises(SettingError) as refused:
        ClosedLoop(**{"num_requests": 5, "concurrency": 2, **LENGTHS, **settings})
    assert str(refused.value) == line
