import numpy as np
import pytest

from servesim.seeds import stream


def test_a_stream_is_a_function_of_its_name():
    assert (
        stream(1, "arrivals", 7).random(5).tolist() == stream(1, "arrivals", 7).random(5).tolist()
    )


def test_seed_name_and_number_each_make_another_stream():
    coordinates = [(1, "a"), (2, "a"), (1, "b"), (1, "a", 0), (1, "a", 1), (1, "a", 1, 0)]
    first = {tuple(stream(*c).integers(2**63, size=2).tolist()) for c in coordinates}
    assert len(first) == len(coordinates)


def test_streams_do_not_follow_each_other():
    draws = np.array([stream(0, "acceptance", rid).random() for rid in range(2000)])
    assert abs(draws.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 2000)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / np.sqrt(2000)


def test_draws_are_the_same_on_every_machine():
    # recorded once; a change here means that every published seed means something else
    assert stream(0, "arrivals").integers(10**6, size=4).tolist() == [
        306124,
        595349,
        410715,
        661682,
    ]


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError):
        stream(-1, "arrivals")
