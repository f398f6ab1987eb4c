import math
import statistics

import pytest

from servesim.errors import SettingError
from servesim.policies.predictor.lognormal import LogNormalError
from servesim.policies.predictor.max_tokens import MaxTokens
from servesim.records import Request


def request(rid=0, *, output=200, cap=1000):
    return Request(rid, 0, prompt_tokens=10, output_tokens=output, max_tokens=cap)


def test_without_a_predictor_the_cap_is_all_that_is_known():
    assert MaxTokens().predict(request(), seed=0) == 1000.0


def test_no_error_is_the_oracle():
    assert LogNormalError(sigma=0.0).predict(request(), seed=3) == 200.0
    assert LogNormalError(sigma=0.0).predict(request(cap=50), seed=3) == 50.0  # the cap ends it


def test_error_is_lognormal_around_the_truth():
    predictor = LogNormalError(sigma=0.5)
    logs = [math.log(predictor.predict(request(rid), seed=1) / 200) for rid in range(2000)]
    assert statistics.median(logs) == pytest.approx(0.0, abs=0.04)
    assert statistics.stdev(logs) == pytest.approx(0.5, abs=0.03)
    within = sum(abs(error) <= math.log(1.4) for error in logs) / len(logs)
    assert within == pytest.approx(0.5, abs=0.04)


def test_predictions_are_whole_and_at_least_one_token():
    predictor = LogNormalError(sigma=2.0)
    for rid in range(300):
        tokens = predictor.predict(request(rid, output=1), seed=0)
        assert tokens >= 1
        assert tokens == int(tokens)


def test_a_prediction_is_the_requests_own():
    predictor = LogNormalError(sigma=0.5)
    forwards = [predictor.predict(request(rid), seed=5) for rid in range(20)]
    backwards = [predictor.predict(request(rid), seed=5) for rid in reversed(range(20))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) > 1  # equal requests, an error each
    assert forwards != [predictor.predict(request(rid), seed=6) for rid in range(20)]


def test_errors_are_stated():
    assert LogNormalError(sigma=0.3).describe() == "log-normal error, sigma 0.3"
    assert "max_tokens" in MaxTokens().describe()


def test_bad_sigma_is_named():
    with pytest.raises(SettingError, match=r"^sigma=-0\.1"):
        LogNormalError(sigma=-0.1)
