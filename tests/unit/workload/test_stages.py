"""Arrivals whose rate changes in steps."""

import numpy as np
import pytest

from servesim import seeds
from servesim.errors import SettingError
from servesim.workload.arrivals import Constant, Poisson
from servesim.workload.stages import Stages

EVEN = Constant(first_at_zero=True)


def seconds(stages, number):
    return stages.times(number, seeds.stream(1, "x")) / stages.mean_rate_rps


def test_each_stage_sends_at_its_rate():
    stages = Stages([2.0, 4.0], [2.0, 1.0], EVEN)
    assert stages.num_requests == (4, 4)
    assert stages.mean_rate_rps == pytest.approx(8 / 3)
    assert seconds(stages, 8) == pytest.approx([0, 0.5, 1, 1.5, 2, 2.25, 2.5, 2.75])


def test_the_last_stage_goes_on_and_a_shorter_load_stops_early():
    stages = Stages([2.0, 4.0], [2.0, 1.0], EVEN)
    assert seconds(stages, 10)[-1] == pytest.approx(3.25)
    assert seconds(stages, 3) == pytest.approx([0, 0.5, 1])


def test_another_rate_stretches_all_stages_alike():
    stages = Stages([2.0, 4.0], [2.0, 1.0], EVEN)
    halved = stages.times(8, seeds.stream(1, "x")) / (stages.mean_rate_rps / 2)
    assert halved == pytest.approx(2 * seconds(stages, 8))


def test_drawn_gaps_keep_their_rate_and_their_order():
    stages = Stages([10.0, 100.0], [100.0, 10.0], Poisson())
    times = seconds(stages, 2000)
    assert (np.diff(times) >= 0).all()
    assert times[999] == pytest.approx(100, rel=0.15)
    assert times[-1] == pytest.approx(110, rel=0.15)


@pytest.mark.parametrize(
    ("rates", "durations", "within", "setting"),
    [
        ([], [], EVEN, "rates_rps"),
        ([1.0], [1.0, 2.0], EVEN, "durations_s"),
        ([0.0], [1.0], EVEN, "rates_rps"),
        ([1.0], [1.0], None, "within"),
    ],
)
def test_stages_that_are_none_are_refused(rates, durations, within, setting):
    with pytest.raises(SettingError, match=setting):
        Stages(rates, durations, within)
