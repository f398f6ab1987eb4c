import numpy as np
import pytest

from servesim.workload.lengths import LogNormal
from validation import fit_lengths
from validation.fit_workload import arrivals, laws, report


def test_ks_by_hand():
    # At 1 the shares are 0.5 and 0.25, at 2 they are 1.0 and 0.5.
    assert laws.ks(np.array([1, 2]), np.array([1, 2, 3, 4])) == pytest.approx(0.5)
    assert laws.ks(np.array([1, 2]), np.array([1, 2])) == 0


def test_a_fit_to_draws_of_a_law_finds_the_law():
    law = LogNormal(sigma=0.8, median_tokens=400, max_tokens=100_000)
    fitted = laws.fit_lognormal(law.at(laws.RANKS))
    assert fitted.median_tokens == pytest.approx(400, rel=0.01)
    assert fitted.sigma == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize("max_ks", [0.1, 0.02])
def test_a_table_keeps_its_distance(max_ks):
    rng = np.random.default_rng(0)
    two_humps = np.concatenate([rng.poisson(100, 4000) + 1, rng.poisson(400, 6000) + 1])
    table = laws.fit_quantiles(two_humps, max_ks)
    assert laws.ks(two_humps, table.at(laws.RANKS)) <= max_ks


def test_a_single_length_is_fitted_exactly():
    table = laws.fit_quantiles(np.full(50, 7), 0.01)
    assert set(table.at(laws.RANKS).tolist()) == {7}


def test_a_smaller_distance_takes_more_points():
    values = LogNormal(sigma=1.0, median_tokens=500).at(laws.RANKS)
    coarse, fine = (len(laws.fit_quantiles(values, d).points) for d in (0.1, 0.01))
    assert coarse < fine < 60


def test_prompts_are_cut_where_replies_change():
    prompts = np.arange(1, 901)
    outputs = np.where(prompts <= 300, 10, np.where(prompts <= 500, 90, 20))
    assert laws.prompt_bounds(prompts, outputs, 3) == [300, 500]


def test_gaps_of_a_drifting_poisson_process():
    rng = np.random.default_rng(0)
    rates = np.repeat([1.0, 20.0] * 10, 1000)
    times = np.cumsum(rng.exponential(1 / rates))
    assert arrivals.gap_cv(times) > 1.5
    assert arrivals.local_gap_cv(times) == pytest.approx(0.98, abs=0.05)


def test_the_report_shows_dependence_and_ends_in_yaml():
    rng = np.random.default_rng(0)
    prompts = rng.integers(1, 1000, 5000)
    outputs = np.where(prompts > 500, rng.integers(300, 320, 5000), rng.integers(10, 20, 5000))
    trace = report.Trace(np.cumsum(rng.exponential(1, 5000)), prompts, outputs)
    text = "\n".join(report.lines(trace, num_ranges=2, max_ks=0.02))
    assert "explains 100% of the variance" in text
    assert "up_to_tokens: [500]" in text
    assert "servesim.workload.lengths.QuantilesByPrompt" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["file=cov"], "did you mean 'conv'"),
        (["sorce=azure"], "sorce"),
        (["max_ks=0"], "max_ks"),
        (["max_ks=much"], "much"),
    ],
)
def test_mistakes_are_one_line_and_status_two(arguments, reason, capsys):
    assert fit_lengths.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert reason in printed
    assert printed.count("\n") == 1
