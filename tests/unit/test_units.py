import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim import units


def test_known_conversions():
    assert units.seconds_to_ps(1.5) == 1_500_000_000_000
    assert units.seconds_to_ps(0.1) + units.seconds_to_ps(0.2) == units.seconds_to_ps(0.3)
    assert units.ps_to_seconds(250_000_000) == 0.00025
    assert units.gib(3 * 2**30) == 3.0
    assert units.gib_to_bytes(0.5) == 2**29


def test_time_lies_on_a_nanosecond_grid():
    assert units.seconds_to_ps(1.4e-9) == 1_000
    assert units.seconds_to_ps(1.6e-9) == 2_000


def test_a_time_is_an_integer_and_must_be_finite():
    assert isinstance(units.seconds_to_ps(2), int)
    with pytest.raises((OverflowError, ValueError)):
        units.seconds_to_ps(float("inf"))


@given(st.integers(0, 10**6 * 10**9))
def test_whole_nanoseconds_survive_the_way_through_seconds(ns):
    """Up to a million seconds a float of seconds resolves a nanosecond."""
    assert units.seconds_to_ps(units.ps_to_seconds(ns * units.PS_PER_NS)) == ns * units.PS_PER_NS
