"""Every metric gives a flat row, whatever became of the run."""

import math
import re
from dataclasses import is_dataclass
from functools import cache

import pytest
import yamls
from hydra.utils import instantiate
from serving import MS, engine, request, serve

from servesim.records import RunRecord

# a unit, or a count, a share, or a label that has none
UNITS = re.compile(r"_(s|rps|tokens_per_s|fraction|share|rate|mean|max|tokens|step)$")
PURE = {
    *("requests", "finished", "rejected", "unfinished", "failed", "steps", "preemptions"),
    *("preempted_requests", "rejected_reason", "slo_attainment", "rho", "overloaded"),
    "kv_waste",
}


@cache
def runs() -> dict[str, RunRecord]:
    """Small runs that end in every way."""
    many = [request(i, i * 5 * MS, prompt=10 + i % 20, output=1 + i % 30) for i in range(40)]
    return {
        "served": serve(many, keep_steps=True),
        "short of memory": serve(many, engine(blocks=20, max_model_len=64)),
        "cut": serve(many, until_ps=300 * MS),
        "cut before anyone came": serve([request(0, 900 * MS)], until_ps=300 * MS),
        "all rejected": serve([request(0, prompt=5000)]),
        "one token": serve([request(0, prompt=1, output=1)]),
    }


def metrics(path):
    return instantiate(yamls.tree(path), _convert_="all")


@yamls.each("metrics")
def test_a_file_names_its_metrics_which_are_frozen_values(path):
    made = metrics(path)
    assert list(made) == [path.stem]
    for metric in made.values():
        assert is_dataclass(metric)
        assert metric.__dataclass_params__.frozen
    assert made == metrics(path)


@yamls.each("metrics")
def test_a_row_is_flat_repeatable_and_always_has_the_same_columns(path):
    columns = set()
    for run in runs().values():
        for metric in metrics(path).values():
            row = metric.measure(run)
            assert row == metric.measure(run)
            assert row
            columns.add(tuple(row))
            for name, value in row.items():
                assert value is None or type(value) in (int, float, str, bool), name
                assert not isinstance(value, float) or math.isfinite(value), name
    assert len(columns) == 1


@yamls.each("metrics")
def test_columns_carry_their_units(path):
    for metric in metrics(path).values():
        for name in metric.measure(runs()["served"]):
            assert name in PURE or UNITS.search(name), name


@yamls.each("metrics")
def test_a_served_load_has_a_value_in_every_column(path):
    for metric in metrics(path).values():
        row = metric.measure(runs()["served"])
        missing = {name for name, value in row.items() if value is None}
        assert missing <= {"rejected_reason"}  # nobody was


def test_no_two_metrics_fill_one_column():
    names = [
        name
        for path in yamls.of("metrics")
        for metric in metrics(path).values()
        for name in metric.measure(runs()["served"])
    ]
    assert len(names) == len(set(names))


def test_the_runs_end_in_every_way():
    ends = {record.status for run in runs().values() for record in run.requests}
    assert ends == {"finished", "rejected", "unfinished"}
    assert sum(r.preemptions for r in runs()["short of memory"].requests) > 0
    with pytest.raises(StopIteration):
        next(r for r in runs()["cut before anyone came"].requests if r.queued_ps is not None)
