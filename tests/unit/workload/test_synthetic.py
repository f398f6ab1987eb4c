import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servesim.content import SharedPrefix, Unique
from servesim.errors import SettingError
from servesim.units import PS_PER_S
from servesim.workload.arrivals import Constant, Gamma, Poisson
from servesim.workload.lengths import Fixed, LogNormal, QuantilesByPrompt, Uniform
from servesim.workload.prefixes import PrefixGroups
from servesim.workload.synthetic import Synthetic

BASE = Synthetic(
    num_requests=200,
    rate_rps=2.0,
    arrival=Poisson(),
    prompt=Uniform(10, 1000),
    output=LogNormal(sigma=1.0, median_tokens=100),
    prefix=PrefixGroups(num_groups=4, prefix_tokens=64, share=0.5),
    priorities={0: 0.3, 1: 0.7},
)
# arrival, prompt, output, priority of the first requests of seed 7
PINNED = [
    (198_017_430_000, 470, 70, 1),
    (248_647_428_000, 861, 462, 1),
    (1_241_906_944_000, 905, 43, 1),
]
FIELDS = ("arrival_ps", "prompt_tokens", "output_tokens", "priority", "content")


def requests(**changes):
    return replace(BASE, **changes).load(7).requests


def same_fields(**changes):
    before, after = requests(), requests(**changes)
    pairs = list(zip(before, after, strict=True))
    return {f for f in FIELDS if all(getattr(a, f) == getattr(b, f) for a, b in pairs)}


def test_constant_arrivals_by_hand():
    made = requests(num_requests=3, arrival=Constant(), output=Fixed(9), rate_rps=4.0)
    assert [r.arrival_ps for r in made] == [PS_PER_S // 4, PS_PER_S // 2, 3 * PS_PER_S // 4]
    assert [r.rid for r in made] == [0, 1, 2]
    assert [(r.output_tokens, r.max_tokens) for r in made] == [(9, 9)] * 3


def test_the_same_seed_gives_the_same_load_and_another_one_another():
    assert BASE.load(7) == BASE.load(7)
    assert BASE.load(7).requests[0] != BASE.load(8).requests[0]


def test_even_ranks_draw_the_law_itself_in_random_order():
    drawn = requests(even_ranks=True, prefix=None, prompt=Uniform(1, 200), output=Uniform(1, 100))
    prompts = [r.prompt_tokens for r in drawn]
    assert sorted(prompts) == list(range(1, 201))
    assert prompts != sorted(prompts)
    assert sorted(r.output_tokens for r in drawn) == [n for n in range(1, 101) for _ in range(2)]
    assert prompts != [r.output_tokens for r in drawn]
    with pytest.raises(SettingError, match="even_ranks"):
        replace(BASE, even_ranks=1)


def test_a_seed_means_the_same_on_every_machine():
    first = requests()[:3]
    assert [(r.arrival_ps, r.prompt_tokens, r.output_tokens, r.priority) for r in first] == PINNED


@given(rate=st.floats(0.01, 1000))
@settings(max_examples=25, deadline=None)
def test_another_rate_stretches_the_same_arrivals_and_changes_nothing_else(rate):
    for at_two, at_rate in zip(requests(), requests(rate_rps=rate), strict=True):
        # Each is rounded to a nanosecond by itself.
        stretched = at_two.arrival_ps * 2.0 / rate
        assert abs(at_rate.arrival_ps - stretched) <= 501 * (1 + 2 / rate)
        assert replace(at_rate, arrival_ps=at_two.arrival_ps) == at_two


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"arrival": Gamma(0.1)}, {"arrival_ps"}),
        ({"output": Fixed(5)}, {"output_tokens"}),
        ({"prompt": Uniform(10, 2000)}, {"prompt_tokens"}),
        ({"priorities": None}, {"priority"}),
        ({"rate_rps": math.inf}, {"arrival_ps"}),
    ],
)
def test_another_law_changes_only_what_it_says(changes, changed):
    assert set(FIELDS) - same_fields(**changes) == changed


def test_a_law_by_prompt_reads_the_prompt():
    law = QuantilesByPrompt([500], [[[0, 0], [1, 1]], [[0, 1], [1, 2]]])
    assert all(r.output_tokens == 1 + (r.prompt_tokens > 500) for r in requests(output=law))


def test_an_infinite_rate_sends_all_at_once():
    assert {r.arrival_ps for r in requests(rate_rps=math.inf)} == {0}


def test_a_prefix_is_part_of_its_prompt():
    load = replace(BASE, prompt=Fixed(40)).load(7)
    has_prefix = [r for r in load.requests if r.content != Unique()]
    assert 70 < len(has_prefix) < 130
    assert {r.prompt_tokens for r in has_prefix} == {65}
    assert {r.prompt_tokens for r in load.requests if r.content == Unique()} == {40}
    assert load.counts["prompts_lengthened_to_prefix"] == len(has_prefix)
    assert str(len(has_prefix)) in load.notes[0]


def test_prompts_long_enough_are_left_alone_and_nothing_is_noted():
    load = replace(BASE, prompt=Uniform(65, 70)).load(7)
    assert not load.notes
    assert not load.counts


def test_keys_are_equal_inside_a_shared_prefix_and_nowhere_else():
    one, two = (
        next(r for r in requests() if r.content == SharedPrefix(group, 64)) for group in (0, 1)
    )
    other_of_one = next(
        r for r in requests() if r.content == SharedPrefix(0, 64) and r.rid != one.rid
    )
    alone = next(r for r in requests() if r.content == Unique())
    keys = {r.rid: r.content.block_keys(r.rid, 0, 6, 16) for r in (one, two, other_of_one, alone)}
    assert keys[one.rid][:4] == keys[other_of_one.rid][:4]
    assert not set(keys[one.rid][4:]) & set(keys[other_of_one.rid])
    assert not set(keys[one.rid]) & set(keys[two.rid])
    assert not set(keys[alone.rid]) & set(keys[one.rid] + keys[two.rid])


def test_a_cap_is_sent_by_every_request_and_cut_replies_are_counted():
    load = replace(BASE, max_tokens=100).load(7)
    assert {r.max_tokens for r in load.requests} == {100}
    longer = sum(r.output_tokens > 100 for r in load.requests)
    assert 70 < longer < 130  # 100 is the median
    assert load.counts["replies_capped"] == longer


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_requests", 0),
        ("num_requests", 2.0),
        ("rate_rps", 0),
        ("rate_rps", -1.0),
        ("rate_rps", math.nan),
        ("rate_rps", -math.inf),
        ("rate_rps", 1e-300),
        ("rate_rps", None),
        ("max_tokens", 0),
        ("arrival", {"burstiness": 1.0}),
        ("prompt", 512),
        ("prompt", QuantilesByPrompt([], [[[0, 0], [1, 1]]])),
        ("output", Poisson()),
        ("prefix", 5),
        ("priorities", {0: 0.5}),
    ],
)
def test_refusals_name_the_setting(setting, value):
    with pytest.raises(SettingError) as caught:
        replace(BASE, **{setting: value})
    assert caught.value.setting == setting
