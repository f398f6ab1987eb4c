import numpy as np
import pytest

from servesim.errors import SettingError
from servesim.seeds import stream
from servesim.workload.prefixes import NO_GROUP, PrefixGroups

MANY = 60_000


def groups(**settings):
    made = PrefixGroups(**{"num_groups": 3, "prefix_tokens": 16} | settings)
    return made.groups(MANY, stream(1, "test"))


def test_zipf_of_exponent_one_is_six_three_two_elevenths():
    shares = np.bincount(groups(zipf_exponent=1.0)) / MANY
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.01)


def test_without_an_exponent_groups_are_alike():
    assert np.bincount(groups()) / MANY == pytest.approx([1 / 3] * 3, abs=0.01)


def test_share_is_the_part_that_has_a_prefix():
    assert (groups(share=0.25) != NO_GROUP).mean() == pytest.approx(0.25, abs=0.01)
    assert (groups(share=0.0) == NO_GROUP).all()


def test_another_share_moves_nobody_between_groups():
    few, all_of_them = groups(share=0.25), groups(share=1.0)
    has_one = few != NO_GROUP
    assert (few[has_one] == all_of_them[has_one]).all()


@pytest.mark.parametrize(
    "settings",
    [{"num_groups": 0}, {"prefix_tokens": 0}, {"share": 1.1}, {"zipf_exponent": -1}],
)
def test_refusals(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        groups(**settings)
