import pickle

import pytest

from servesim.errors import (
    CapacityError,
    CostMismatchError,
    MissingDataError,
    OutputError,
    ServesimError,
    SettingError,
    TraceError,
    UnknownChoiceError,
    nearest,
)

EVERY = [
    (SettingError("tp", 3, "must divide 8"), ValueError, "tp=3: must divide 8"),
    (
        UnknownChoiceError("order", "fcsf", ["fcfs", "sjf"]),
        LookupError,
        "unknown order 'fcsf' (known: fcfs, sjf); did you mean 'fcfs'?",
    ),
    (TraceError("a.csv", 7, "no column x"), ValueError, "a.csv:7: no column x"),
    (TraceError("a.csv", None, "empty"), ValueError, "a.csv: empty"),
    (CapacityError("no room"), ValueError, "no room"),
    (CostMismatchError("other GPU"), ValueError, "other GPU"),
    (OutputError("disk full"), OSError, "disk full"),
    (MissingDataError("no data"), FileNotFoundError, "no data"),
]


@pytest.mark.parametrize(("error", "builtin", "message"), EVERY, ids=lambda v: type(v).__name__)
def test_each_is_a_builtin_with_a_one_line_message(error, builtin, message):
    assert isinstance(error, ServesimError)
    assert isinstance(error, builtin)
    assert str(error) == error.message == message


@pytest.mark.parametrize("error", [e for e, _, _ in EVERY], ids=lambda e: type(e).__name__)
def test_each_survives_a_process_boundary(error):
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)


def test_a_setting_can_be_named_in_full():
    error = SettingError("watermark", 2, "must be in [0, 1]").within("scheduler")
    assert str(error) == "scheduler.watermark=2: must be in [0, 1]"
    assert isinstance(error, SettingError)


def test_nearest_offers_only_what_is_near():
    assert nearest("lognorm", ["lognormal", "gamma"]).endswith("did you mean 'lognormal'?")
    assert nearest("zzz", ["b", "a"]) == " (known: a, b)"
    assert nearest("x", []) == ""
