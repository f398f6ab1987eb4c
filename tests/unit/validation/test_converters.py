"""The command, its errors, published names, and the public files where they are."""

import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest
from measurements import DATACRUNCH, SILICON, cases_of, csv_file, jsonl_file

from servesim.errors import MissingDataError, TraceError
from validation.cases.__main__ import CONVERTERS, converter_of, find, main, write_all
from validation.cases.converters.parts import silicon_trtllm
from validation.cases.format import read_case
from validation.cases.published import hardware_stem, load_model, model_stem

ROOT = Path(__file__).resolve().parents[3]
LISTED = (ROOT / "validation" / "sources" / "README.md").read_text()
DATA = Path(os.environ.get("SERVESIM_DATA", ROOT.parent / "shared" / "data"))
SOURCES = sorted(path.stem for path in CONVERTERS.glob("*.py") if path.stem != "__init__")


class TestBadFiles:
    def test_a_renamed_column_is_named_with_the_nearest(self, tmp_path):
        row = {k if k != "isl" else "isll": v for k, v in SILICON.items()}
        reason = r"s\.csv:1: lacks the column 'isl'.*did you mean 'isll'"
        with pytest.raises(TraceError, match=reason):
            cases_of("silicon", csv_file(tmp_path / "s.csv", row))

    @pytest.mark.parametrize(
        ("column", "value", "reason"),
        [
            ("isl", "many", r"isl='many': must be a number"),
            ("isl", "10.5", r"isl='10.5': must be a whole number of at least 1"),
            ("isl", "", r"isl='': must be given"),
            ("concurrency", "0", r"concurrency='0': must be a whole number of at least 1"),
            ("silicon_ttft_ms", "inf", r"silicon_ttft_ms='inf': must be a finite number"),
            ("silicon_tpot_ms", "-1", r"silicon_tpot_ms='-1': must be a finite number"),
            ("silicon_tpot_ms", "0", r"silicon_tpot_ms='0': must be above 0"),
        ],
    )
    def test_a_bad_value_is_named_with_its_line_and_column(self, tmp_path, column, value, reason):
        path = csv_file(tmp_path / "s.csv", SILICON, SILICON | {column: value})
        with pytest.raises(TraceError, match=rf"s\.csv:3: {reason}"):
            cases_of("silicon", path)

    def test_a_short_line_is_named(self, tmp_path):
        path = csv_file(tmp_path / "s.csv", SILICON)
        path.write_text(path.read_text() + "a,b\n")
        with pytest.raises(TraceError, match=r"s\.csv:3: must have 17 columns"):
            cases_of("silicon", path)

    def test_a_line_that_is_no_json_is_named(self, tmp_path):
        path = jsonl_file(tmp_path / "llama_3_3_70b.jsonl", DATACRUNCH)
        path.write_text(path.read_text() + "{\n")
        with pytest.raises(TraceError, match=r"llama_3_3_70b\.jsonl:2: is no JSON"):
            cases_of("datacrunch", path)

    def test_nothing_is_written_where_a_row_is_bad(self, tmp_path, capsys):
        path = csv_file(tmp_path / "s.csv", SILICON, SILICON | {"osl": "x"})
        out = tmp_path / "out"
        assert main(["source=silicon", f"file={path}", f"out={out}"]) == 2
        assert "s.csv:3: osl='x': must be a number" in capsys.readouterr().err
        assert not out.exists()


class TestCommand:
    def test_cases_are_written_and_counted(self, tmp_path, capsys):
        rows = [SILICON, SILICON, SILICON | {"backend": "lmdeploy"}]
        path = csv_file(tmp_path / "s.csv", *rows)
        out = tmp_path / "out"
        assert main(["source=silicon", f"file={path}", f"out={out}"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed == [
            f"silicon: 3 cases written to {out}, 2 covered",
            "  1 not covered: no scheduler profile of lmdeploy",
        ]
        names = sorted(path.stem for path in out.glob("*.yaml"))
        assert len(names) == 3  # equal rows are told apart by a number
        assert names[-1].endswith("_c16_2")
        assert [read_case(out / f"{name}.yaml").name for name in names] == names

    def test_cases_of_an_earlier_run_are_mentioned(self, tmp_path, capsys):
        out = tmp_path / "out"
        for row in (SILICON, SILICON | {"isl": "2048"}):
            path = csv_file(tmp_path / "s.csv", row)
            assert main(["source=silicon", f"file={path}", f"out={out}"]) == 0
        assert "warning: 1 other cases were there before" in capsys.readouterr().out

    def test_an_unknown_source_names_the_known_ones(self, capsys):
        assert main(["source=silicn"]) == 2
        assert "did you mean 'silicon'?" in capsys.readouterr().err

    def test_an_unknown_argument_names_the_known_ones(self, capsys):
        assert main(["source=silicon", "fil=x"]) == 2
        assert "did you mean 'file'?" in capsys.readouterr().err

    def test_without_a_source_the_usage_is_shown(self, capsys):
        assert main([]) == 2
        assert "source=NAME" in capsys.readouterr().err

    def test_absent_data_is_named(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("SERVESIM_DATA", str(tmp_path))
        assert main(["source=silicon"]) == 2
        assert "no aiconfigurator/silicon_dense_agg_subset.csv" in capsys.readouterr().err
        assert main(["source=silicon", f"file={tmp_path / 'x.csv'}"]) == 2
        assert "x.csv: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("published", "stem"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1_8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3_8b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1_70b"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama3.1_8b"),
        ("Qwen/Qwen3-32B-FP8", "qwen3_32b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3_30b_a3b"),
        ("qwen-2.5-7b-instruct", "qwen2.5_7b"),
        ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral_8x22b"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral_nemo_12b"),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", "llama4_scout"),
        ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", None),
        ("meta-llama/Llama-3.1-9B", None),
    ],
)
def test_a_published_model_is_found_by_its_architecture(published, stem):
    assert model_stem(published) == stem
    if stem:
        assert load_model(stem).num_parameters > 1e9


@pytest.mark.parametrize(
    ("published", "stem"),
    [
        ("H100", "h100_sxm"),
        ("A100-80GB?", "a100_80gb_sxm"),
        ("Nvidia GH200 GPU", "gh200_96gb"),
        ("AMD MI300X GPU", "mi300x"),
        ("RTXPRO6000", "rtx_pro_6000"),
        ("Habana Gaudi2", None),
    ],
)
def test_a_published_gpu_is_found(published, stem):
    assert hardware_stem(published) == stem


# source: cases, covered ones
COUNTS = {
    "argonne": (2926, 1206),
    "blis": (53, 43),
    "datacrunch": (4, 3),
    "gpullm": (33, 33),
    "llmservingsim": (4, 4),
    "powertrace": (5, 5),
    "silicon": (622, 622),
    "specbench": (928, 116),
}


def public(source, monkeypatch):
    """The source's files, or the test is skipped where they are absent or have other rows."""
    if not DATA.is_dir():
        pytest.skip(f"needs public measurements at {DATA}; set SERVESIM_DATA")
    monkeypatch.setenv("SERVESIM_DATA", str(DATA))
    try:
        paths = find(converter_of(source).PATTERNS)
    except MissingDataError as absent:
        pytest.skip(str(absent))
    for path in paths:
        if hashlib.sha256(path.read_bytes()).hexdigest() not in LISTED:
            pytest.skip(f"{path} is not the file listed in validation/sources/README.md")
    return paths


@pytest.mark.parametrize("source", SOURCES)
def test_the_public_files_are_read_whole(source, monkeypatch):
    cases = [case for path in public(source, monkeypatch) for case in cases_of(source, path)]
    assert (len(cases), sum(case.not_covered is None for case in cases)) == COUNTS[source]
    assert all(case.measured for case in cases)


def test_every_converter_has_its_counts():
    assert sorted(COUNTS) == SOURCES


def test_silicons_reasons(monkeypatch):
    (path,) = public("silicon", monkeypatch)
    cases = cases_of("silicon", path)
    assert not any(case.not_covered for case in cases)
    assert len({case.name for case in cases}) == 622
    versions = Counter((case.engine.name, case.engine.version) for case in cases)
    assert versions["trtllm", None] == 108  # of the 233 that do not record it
    assert versions["vllm", "0.11"] == 125
    doubts = Counter(note for case in cases if case.engine.name == "trtllm" for note in case.notes)
    assert doubts[silicon_trtllm.STREAMED] == 36
    assert doubts[silicon_trtllm.WITH_MORE_USERS] == 26


def test_the_source_of_the_stamps_computes_the_same(monkeypatch):
    path = public("llmservingsim", monkeypatch)[0]
    (case,) = cases_of("llmservingsim", path)
    # `validation/summary.txt`, column vLLM
    assert round(case.measured["ttft_ms"]["mean"], 1) == 7097.2
    assert round(case.measured["tpot_ms"]["p99"], 1) == 37.3
    assert round(case.measured["e2e_ms"]["p50"], 1) == 29615.6


def test_what_is_written_is_read_again(tmp_path, monkeypatch):
    paths = public("powertrace", monkeypatch)
    for case in write_all("powertrace", paths[0], tmp_path):
        assert read_case(tmp_path / f"{case.name}.yaml") == case
    assert len(list(tmp_path.glob("*.csv"))) == 4
