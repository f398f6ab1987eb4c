"""One measured run beside its simulation."""

import os
from pathlib import Path

import pytest

from tests.unit.validation.measured_cases import CASE, case
from validation.cases.format import write_case
from validation.replay.__main__ import CASES, main

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SERVESIM_DATA", ROOT.parent / "shared" / "data"))
NAME = "llmservingsim_rtxpro6000_llama8b"


# what the cost may be off by: less than the best published simulation of this run
MOST_PERCENT = {"ttft_ms mean": 3.0, "ttft_ms p50": 5.0, "tpot_ms mean": 1.5, "e2e_ms mean": 1.5}


def printed_rows(text):
    """Figure → the columns behind it."""
    lines = [line.split() for line in text.splitlines() if line]
    return {" ".join(words[:2]): words[2:] for words in lines}


def test_a_case_by_its_path_with_a_peers_error(tmp_path, capsys):
    path = write_case(case(peers={"other": {"ttft_ms": {"unspecified": 12.0}}}), tmp_path)
    assert main([f"case={path}"]) == 0
    rows = printed_rows(capsys.readouterr().out)
    measured, simulated, error, other = rows["ttft_ms unspecified"]
    assert (measured, other) == ("10.000", "+20.0%")
    assert error == f"{float(simulated) / 10 - 1:+.1%}"
    assert rows["tpot_ms mean"][3] == "-"


def test_settings_are_laid_over_the_cases_own(tmp_path, capsys):
    path = write_case(CASE, tmp_path)
    assert main([f"case={path}", "cost.host_overhead_s=0.1"]) == 0
    assert float(printed_rows(capsys.readouterr().out)["tpot_ms mean"][1]) > 100


def test_an_unknown_case_names_the_known_ones(capsys):
    assert main([f"case={NAME[:-1]}"]) == 2
    assert f"did you mean '{NAME}'?" in capsys.readouterr().err


def test_a_path_without_a_file_is_named(capsys):
    assert main(["case=none.yaml"]) == 2
    assert "case=none.yaml: no such file" in capsys.readouterr().err


def test_a_case_that_is_not_covered_says_why(tmp_path, capsys):
    path = write_case(case(not_covered="no such engine"), tmp_path)
    assert main([f"case={path}"]) == 2
    assert "no such engine" in capsys.readouterr().err


def test_without_a_case_the_usage_is_shown(capsys):
    assert main([]) == 2
    assert "case=NAME" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_case_of_the_repository(path, capsys, monkeypatch):
    if not DATA.is_dir():
        pytest.skip(f"needs public measurements at {DATA}; set SERVESIM_DATA")
    monkeypatch.setenv("SERVESIM_DATA", str(DATA))
    assert main([f"case={path.stem}"]) == 0
    printed = capsys.readouterr().out
    assert "300 requests simulated" in printed
    rows = printed_rows(printed)
    # the source's own summary of the measured run
    assert rows["ttft_ms mean"][0] == "7097.157"
    assert rows["ttft_ms mean"][3] == "-4.0%"
    for figure, most_percent in MOST_PERCENT.items():
        assert abs(float(rows[figure][2].rstrip("%"))) <= most_percent, figure
