import math

import numpy as np
import pytest

from servesim.errors import SettingError
from servesim.seeds import stream
from servesim.workload.arrivals import Constant, Gamma, Poisson

MANY = 200_000


def rng():
    return stream(1, "test")


def gaps(process):
    return np.diff(process.times(MANY, rng()), prepend=0.0)


def test_constant_arrivals_by_hand():
    assert Constant().times(4, rng()).tolist() == [1, 2, 3, 4]
    assert Constant(first_at_zero=True).times(4, rng()).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("burstiness", [1 / 9, 1.0, 4.0])
def test_gamma_gaps_have_mean_one_and_cv_of_one_over_root_burstiness(burstiness):
    sample, cv = gaps(Gamma(burstiness)), 1 / math.sqrt(burstiness)
    # Five standard errors of the mean; the CV of the burstiest needs more room.
    assert sample.mean() == pytest.approx(1, abs=5 * cv / math.sqrt(MANY))
    assert sample.std() / sample.mean() == pytest.approx(cv, rel=0.02)


def test_a_third_of_poisson_gaps_are_longer_than_the_mean_gap():
    assert (gaps(Poisson()) > 1).mean() == pytest.approx(math.exp(-1), abs=0.006)


def test_poisson_is_gamma_of_burstiness_one():
    assert Poisson().times(50, rng()).tolist() == Gamma(1.0).times(50, rng()).tolist()


def test_burstiness_is_not_cv_squared():
    assert gaps(Gamma(9.0)).std() < gaps(Poisson()).std() < gaps(Gamma(1 / 9)).std()


@pytest.mark.parametrize("process", [Poisson, Gamma])
def test_normalised_arrivals_are_the_raw_ones_scaled_to_end_at_n(process):
    raw, scaled = (process(normalise=flag).times(7, rng()) for flag in (False, True))
    assert scaled[-1] == 7  # vLLM's bench serve: the last arrival is exactly N/rate
    assert scaled / scaled[0] == pytest.approx(raw / raw[0])
    assert scaled[0] > 0  # the first request waits the first gap


@pytest.mark.parametrize("process", [Poisson, Gamma])
def test_first_at_zero_moves_every_arrival_to_the_one_before(process):
    raw, early = (process(first_at_zero=flag).times(7, rng()) for flag in (False, True))
    assert early.tolist() == [0, *raw[:-1]]


@pytest.mark.parametrize(
    "process", [Poisson(), Gamma(0.2), Constant(), Poisson(first_at_zero=True)]
)
def test_a_longer_run_begins_with_the_shorter_one(process):
    assert process.times(30, rng())[:10].tolist() == process.times(10, rng()).tolist()


def test_a_burstiness_near_zero_does_not_divide_by_zero():
    assert Gamma(1e-9, normalise=True).times(3, rng()).tolist() == [0, 0, 0]


@pytest.mark.parametrize("burstiness", [0, -1, math.nan, True, "1"])
def test_burstiness_must_be_a_number_above_zero(burstiness):
    with pytest.raises(SettingError, match="burstiness"):
        Gamma(burstiness)


def test_an_infinite_burstiness_is_sent_to_constant():
    with pytest.raises(SettingError, match="Constant"):
        Gamma(math.inf)


def test_the_conventions_of_vllm_and_sglang_exclude_each_other():
    with pytest.raises(SettingError, match="no tool does both"):
        Poisson(normalise=True, first_at_zero=True)
