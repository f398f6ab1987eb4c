import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from servesim.errors import SettingError
from servesim.workload.lengths import Fixed, LogNormal, Quantiles, QuantilesByPrompt, Uniform

RANKS = (np.arange(100_000) + 0.5) / 100_000


def test_fixed():
    assert Fixed(7).at(np.array([0.0, 0.5, 0.99])).tolist() == [7, 7, 7]


def test_uniform_gives_each_length_an_equal_share():
    assert Uniform(3, 5).at(np.array([0.0, 0.33, 0.34, 0.66, 0.67, 0.999])).tolist() == [
        *(3, 3),
        *(4, 4),
        *(5, 5),
    ]


def test_lognormal_of_a_median():
    lengths = LogNormal(sigma=0.5, median_tokens=1000).at(RANKS)
    assert np.median(lengths) == 1000
    assert lengths.mean() == pytest.approx(1000 * math.exp(0.125), rel=1e-3)
    assert np.log(lengths).std() == pytest.approx(0.5, rel=1e-3)


def test_lognormal_of_a_mean_is_the_same_law():
    by_mean = LogNormal(sigma=0.5, mean_tokens=1000 * math.exp(0.125))
    assert (by_mean.at(RANKS) == LogNormal(sigma=0.5, median_tokens=1000).at(RANKS)).all()


def test_truncation_redraws_and_does_not_pile_up_at_the_bounds():
    lengths = LogNormal(sigma=1.0, median_tokens=100, min_tokens=50, max_tokens=200).at(RANKS)
    assert (lengths.min(), lengths.max()) == (50, 200)
    # By symmetry of log(50), log(100), log(200) the median stays.
    assert np.median(lengths) == pytest.approx(100, abs=1)
    # A clipped law would have a quarter at each bound: P(|Z| > log 2) = 0.49.
    assert (lengths == 50).mean() < 0.02
    assert (lengths == 200).mean() < 0.01


@given(
    sigma=st.floats(0.2, 3),
    median=st.floats(1, 1e4),
    low=st.integers(1, 100),
    width=st.integers(0, 10_000),
)
def test_lognormal_never_leaves_its_bounds(sigma, median, low, width):
    try:
        law = LogNormal(sigma, median_tokens=median, min_tokens=low, max_tokens=low + width)
    except SettingError:  # next to nothing lies within the bounds; refused by another test
        assume(False)
    lengths = law.at(np.array([0.0, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-12]))
    assert lengths.min() >= low
    assert lengths.max() <= low + width
    assert (np.diff(lengths) >= 0).all()


def test_quantiles_by_hand():
    law = Quantiles([[0, 0], [0.5, 10], [0.6, 11], [1, 111]])
    # A half in 1..10, a tenth each; a tenth of 11; the rest 12..111.
    assert law.at(np.array([0.0, 0.01, 0.06, 0.499, 0.51, 0.59])).tolist() == [1, 1, 2, 10, 11, 11]
    assert law.at(np.array([0.601, 0.9999])).tolist() == [12, 111]


def test_a_table_of_quantiles_gives_each_length_its_share():
    lengths = Quantiles([[0, 4], [0.2, 5], [0.9, 6], [1, 8]]).at(RANKS)
    shares = {int(v): int(n) for v, n in zip(*np.unique(lengths, return_counts=True), strict=True)}
    assert shares == {5: 20_000, 6: 70_000, 7: 5_000, 8: 5_000}


def test_quantiles_by_prompt_picks_the_table_of_the_prompt():
    law = QuantilesByPrompt([100, 200], [[[0, 0], [1, 1]], [[0, 1], [1, 2]], [[0, 2], [1, 3]]])
    prompts = np.array([1, 100, 101, 200, 201, 10**6])
    assert law.at_given(np.full(6, 0.5), prompts).tolist() == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("make", "setting"),
    [
        (lambda: Fixed(0), "tokens"),
        (lambda: Fixed(1.5), "tokens"),
        (lambda: Uniform(5, 4), "max_tokens"),
        (lambda: LogNormal(sigma=0, median_tokens=5), "sigma"),
        (lambda: LogNormal(sigma=1), "median_tokens"),
        (lambda: LogNormal(sigma=1, median_tokens=5, mean_tokens=6), "median_tokens"),
        (lambda: LogNormal(sigma=1, mean_tokens=-1), "mean_tokens"),
        (lambda: LogNormal(sigma=0.1, median_tokens=5, min_tokens=900), "max_tokens"),
        (lambda: Quantiles([]), "points"),
        (lambda: Quantiles([[0, 5], [0.9, 7]]), "points"),
        (lambda: Quantiles([[0, 5], [0.5, 5], [1, 7]]), "points"),
        (lambda: Quantiles([[0, 5], [0.5, 9], [0.4, 10], [1, 70]]), "points"),
        (lambda: Quantiles([[0, 5], [1, 7.5]]), "points"),
        (lambda: Quantiles([[0, 5, 5], [1, 7]]), "points"),
        (lambda: QuantilesByPrompt([5], [[[0, 5], [1, 7]]]), "tables"),
        (lambda: QuantilesByPrompt([5, 5], [[[0, 5], [1, 7]]] * 3), "up_to_tokens"),
    ],
)
def test_refusals_name_the_setting(make, setting):
    with pytest.raises(SettingError) as caught:
        make()
    assert caught.value.setting == setting
