from collections import Counter

import pytest

from servesim.errors import SettingError
from servesim.workload.priorities import checked_shares, draw


def test_classes_come_in_their_shares():
    counted = Counter(draw({0: 0.2, 5: 0.7, -3: 0.1}, 50_000, seed=1))
    assert {p: n / 50_000 for p, n in counted.items()} == pytest.approx(
        {0: 0.2, 5: 0.7, -3: 0.1}, abs=0.01
    )


def test_no_shares_mean_priority_zero_and_a_share_of_zero_no_one():
    assert draw(None, 3, seed=1) == [0, 0, 0]
    assert set(draw({0: 0.0, 1: 0.5, 2: 0.5}, 1000, seed=1)) == {1, 2}


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({0: 0.5, 1: 0.4}, "add up to 1, not 0.9"),
        ({}, "add up to 1"),
        ({0: 1.5, 1: -0.5}, r"priorities\.0"),
        ({"high": 1.0}, "whole number"),
        ({True: 1.0}, "whole number"),
        ([0.5, 0.5], "mapping"),
    ],
)
def test_refusals(shares, reason):
    with pytest.raises(SettingError, match=reason):
        checked_shares(shares)
