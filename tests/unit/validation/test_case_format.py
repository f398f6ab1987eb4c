"""A case and its YAML: what is written is read again, and a slip is named with its file."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servesim.errors import OutputError, ServesimError, TraceError
from validation.cases.case import Case, Engine, Limits, Source
from validation.cases.format import read_case, write_case
from validation.cases.workloads import (
    ClosedLoop,
    Configured,
    Fixed,
    LogNormal,
    OpenLoop,
    Prefix,
    Requests,
    Sessions,
    Stage,
    StaticBatch,
    Uniform,
)

CASES = Path(__file__).resolve().parents[3] / "validation" / "cases"
SOURCE = Source("silicon", "example.org/repository", "abc", None, "file.csv", "row 1")
CLOSED = ClosedLoop(4, 40, Fixed(128), Uniform(8, 16))
STAGED = OpenLoop(
    rate_rps=2.0,
    arrival="constant",
    num_requests=40,
    prompt=LogNormal(300.0, 1.5),
    output=Fixed(1),
    prefix=Prefix(100, 9),
    stages=(Stage(1.0, 10.0), Stage(3.0, 10.0)),
)
WORKLOADS = [
    CLOSED,
    STAGED,
    OpenLoop(math.inf, "gamma", 3, Fixed(5), Fixed(6), burstiness=4.0),
    Requests("x.csv", 16),
    Sessions("x.csv"),
    StaticBatch(8, Fixed(128), Fixed(128)),
    Configured("llmservingsim_run", ("workload.limit=3",)),
]


def case(**changes):
    facts = {
        "name": "one",
        "source": SOURCE,
        "engine": Engine("vllm", "0.12.0"),
        "model": "llama3.1_8b",
        "hardware": "h100_sxm",
        "workload": CLOSED,
        "measured": {"ttft_ms": {"mean": 12.5}},
        "counted_from": "sent",
    }
    return Case(**(facts | changes))


def text_of(tmp_path, **changes):
    return write_case(case(**changes), tmp_path).read_text()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.kind)
def test_a_case_is_read_as_it_was_written(tmp_path, workload):
    written = case(workload=workload)
    path = write_case(written, tmp_path)
    assert path.name == "one.yaml"
    assert read_case(path) == written


def test_every_field_is_kept(tmp_path):
    written = case(
        engine=Engine("sglang"),
        workload=STAGED,
        tp=4,
        pp=2,
        dp=2,
        expert_parallel=True,
        dtype="fp8",
        kv_dtype="fp8",
        limits=Limits(max_num_seqs=128, enable_prefix_caching=False, gpu_memory_utilization=0.9),
        measured_by_stage=({"e2e_ms": {"p99": 1.0}}, {}),
        peers={"another": {"tpot_ms": {"p50": 3.0}}},
        noise=0.02,
        not_covered="a reason",
        notes=("first", "second: with a colon"),
    )
    assert read_case(write_case(written, tmp_path)) == written


@given(value=st.floats(min_value=0, allow_infinity=False, allow_nan=False))
def test_values_are_kept_to_the_last_bit(tmp_path_factory, value):
    written = case(measured={"makespan_s": {"value": value}})
    assert read_case(write_case(written, tmp_path_factory.mktemp("cases"))) == written


def test_what_is_at_its_default_is_not_written(tmp_path):
    keys = {line.split(":")[0] for line in text_of(tmp_path).splitlines() if line[0].isalpha()}
    assert keys == {
        *("name", "source", "engine", "model", "hardware", "workload", "measured", "counted_from")
    }


@pytest.mark.parametrize(
    ("was", "instead", "reason"),
    [
        ("counted_from: sent", "counted_frm: sent", "did you mean 'counted_from'"),
        ("counted_from: sent", "counted_from: arrived", "unknown counted_from 'arrived'"),
        ("kind: closed_loop", "kind: closed_lop", "did you mean 'closed_loop'"),
        ("law: fixed", "law: fixd", r"unknown workload\.prompt\.law 'fixd'.*did you mean 'fixed'"),
        ("concurrency: 4", "concurrency: 0", r"workload\.concurrency=0: must be 1 or more"),
        ("concurrency: 4", "users: 4", "unknown key in workload 'users'"),
        ("  concurrency: 4\n", "", r"workload\.concurrency=None: must be given"),
        ("ttft_ms", "ttft", "unknown measured: metric 'ttft'.*did you mean 'ttft_ms'"),
        ("mean: 12.5", "avg: 12.5", r"unknown measured\.ttft_ms: statistic 'avg'"),
        ("mean: 12.5", "mean: fast", r"measured\.ttft_ms\.mean='fast': must be a finite number"),
        ("model: llama3.1_8b\n", "", "model=None: must be given"),
        ("name: one", "name: two", "name='two': must be the file's name"),
        ("name: one", "name: [", "while parsing"),
    ],
)
def test_a_slip_is_named_with_its_file(tmp_path, was, instead, reason):
    text = text_of(tmp_path)
    assert text.count(was) == 1
    path = tmp_path / "one.yaml"
    path.write_text(text.replace(was, instead))
    with pytest.raises(TraceError, match=rf"one\.yaml: .*{reason}"):
        read_case(path)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("- 1\n")
    with pytest.raises(TraceError, match=r"one\.yaml: case=\[1\]: must be a mapping"):
        read_case(path)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"one\.yaml: cannot be read"):
        read_case(tmp_path / "one.yaml")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/one\.yaml"):
        write_case(case(), tmp_path / "file")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Uniform(9, 8), "high=8: must be low=9 or more"),
        (lambda: Fixed(1.5), "tokens=1.5: must be a whole number"),
        (lambda: OpenLoop(1.0, "steady", 1, Fixed(1), Fixed(1)), "unknown arrival 'steady'"),
        (
            lambda: OpenLoop(1.0, "poisson", 5, Fixed(1), Fixed(1), stages=(Stage(1.0, 4.0),)),
            "num_requests=5: must be the 4 requests of its stages",
        ),
        (lambda: Limits(max_num_seqs=0), "max_num_seqs=0: must be 1 or more"),
        (lambda: Limits(enforce_eager=1), "enforce_eager=1: must be true or false"),
        (lambda: case(measured_by_stage=({},)), "must be one for each of the 0 stages"),
        (lambda: case(tp=0), "tp=0: must be 1 or more"),
    ],
)
def test_facts_are_checked(make, reason):
    with pytest.raises(ServesimError) as refused:
        make()
    assert reason in str(refused.value)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_case_of_the_repository_loads(path):
    kept = read_case(path)
    assert kept.not_covered is None
    assert kept.measured
