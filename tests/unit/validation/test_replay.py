"""Comparing a measured run with its simulation."""

import os
from pathlib import Path

import pytest

from servesim.errors import MissingDataError, ServesimError, TraceError
from validation.compare.statistics import ServedRequest, errors, statistics
from validation.replay.__main__ import main
from validation.replay.case import CASES, Case, load_case, read_measured, read_peer

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SERVESIM_DATA", ROOT.parent / "shared" / "data"))
NAME = "llmservingsim_rtxpro6000_llama8b"
LINE = '{{"queued_ts": {}, "first_token_ts": {}, "last_token_ts": {}, "output_toks": {}}}'
SUMMARY = """Metric                           vLLM         Sim     Diff%
TTFT Mean                      7097.2      6815.7     -4.0%
TTFT P95                      18397.9     17961.4     -2.4%

TPOT Median                      33.4        33.4     -0.0%
Latency P99                   37638.8     37027.3     -1.6%
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVESIM_DATA", str(tmp_path))
    return tmp_path


def test_statistics_by_hand():
    row = statistics([ServedRequest(10.0, 11.0, 13.0, 5), ServedRequest(12.0, 12.5, 12.5, 1)])
    assert row["TTFT, s, mean"] == 0.75
    assert row["TPOT, ms, mean"] == 500.0  # the reply of one token has none
    assert row["E2E, s, p50"] == 1.75
    assert row["makespan, s"] == 3.0
    assert row["throughput, output tokens/s"] == 2.0


def test_errors_are_shares_of_what_was_measured():
    assert errors({"a": 90.0, "b": 1.0}, {"a": 100.0, "c": 3.0}) == {"a": -0.1}


def test_measured_times_are_read_by_line(data):
    (data / "run.jsonl").write_text(LINE.format(1.0, 2.0, 3.0, 4) + "\n")
    assert read_measured(Case("x", "run.jsonl", ())) == [ServedRequest(1.0, 2.0, 3.0, 4)]


@pytest.mark.parametrize(
    ("second_line", "reason"),
    [
        ("{", "not a request"),
        ("[]", "not a request"),
        ('{"queued_ts": 1}', "lacks 'first_token_ts'"),
    ],
)
def test_a_bad_line_is_named(data, second_line, reason):
    (data / "run.jsonl").write_text(LINE.format(1.0, 2.0, 3.0, 4) + f"\n{second_line}\n")
    with pytest.raises(TraceError, match=rf"run\.jsonl:2: {reason}"):
        read_measured(Case("x", "run.jsonl", ()))


def test_absent_measurements_are_named(data):
    with pytest.raises(MissingDataError, match=r"run\.jsonl: no such file"):
        read_measured(Case("x", "run.jsonl", ()))


def test_the_peers_own_prediction_is_its_sim_column(data):
    (data / "summary.txt").write_text(SUMMARY)
    case = Case("x", "", (), "peer", "summary.txt")
    expected = {"TTFT, s, mean": 6.8157, "TPOT, ms, p50": 33.4, "E2E, s, p99": 37.0273}
    assert read_peer(case)["peer"] == pytest.approx(expected)


def test_a_summary_without_predictions_is_refused(data):
    (data / "summary.txt").write_text("nothing\n")
    with pytest.raises(ServesimError, match="no prediction"):
        read_peer(Case("x", "", (), "peer", "summary.txt"))


def test_an_unknown_case_names_the_known_ones(capsys):
    assert main([f"case={NAME[:-1]}"]) == 2
    assert f"did you mean '{NAME}'?" in capsys.readouterr().err


def test_without_a_case_the_usage_is_shown(capsys):
    assert main([]) == 2
    assert "case=NAME" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_case_loads(path):
    case = load_case(path.stem)
    assert case.overrides
    assert case.measured


def test_the_measured_run_and_its_simulation(capsys, monkeypatch):
    if not DATA.is_dir():
        pytest.skip(f"needs public measurements at {DATA}; set SERVESIM_DATA")
    monkeypatch.setenv("SERVESIM_DATA", str(DATA))
    assert main([f"case={NAME}"]) == 0
    printed = capsys.readouterr().out
    assert "300 requests measured, 300 simulated" in printed
    rows = {line[:28].strip(): line[28:].split() for line in printed.splitlines()}
    # the source's own summary of the measured run, recomputed from its stamps
    assert rows["TTFT, s, mean"][0] == "7.097"
    assert rows["TPOT, ms, mean"][0] == "32.458"
    assert rows["E2E, s, mean"][0] == "28.201"
    # the README's table
    assert [rows[name][2] for name in ("TTFT, s, mean", "TPOT, ms, mean", "E2E, s, mean")] == [
        "-2.5%",
        "-0.2%",
        "-0.8%",
    ]
