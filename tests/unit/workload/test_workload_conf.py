import os
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue

from servesim.errors import MissingDataError
from servesim.workload.readers.azure import AzureTrace
from validation.data import data_dir, source_dir
from validation.fit_workload import laws

CONF = Path(__file__).resolve().parents[3] / "conf" / "workload"


def node(name):
    return OmegaConf.load(CONF / f"{name}.yaml")


def many(num_requests):
    return OmegaConf.merge(node("azure_conv_like"), {"num_requests": num_requests})


@pytest.mark.parametrize("name", ["azure_conv_like", "shared_prefix", "fixed"])
def test_synthetic_workloads_load_without_data(name):
    load = instantiate(node(name)).load(0)
    assert len(load.requests) == node(name).num_requests
    assert not load.notes  # a shipped default needs no excuse
    assert all(r.prompt_tokens >= 1 and r.output_tokens >= 1 for r in load.requests)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_file_begins_with_what_it_is_and_a_command(path):
    comments = path.read_text().split("_target_", maxsplit=1)[0].splitlines()
    assert all(line.startswith("#") for line in comments)
    assert any(f"servesim workload={path.stem}" in line for line in comments)


@pytest.mark.parametrize("name", [p.stem for p in sorted(CONF.glob("*.yaml"))])
def test_every_workload_takes_a_rate(name):
    assert "rate_rps" in node(name)


def test_the_default_has_priority_classes_and_meets_its_rate():
    load = instantiate(many(20_000)).load(0)
    assert {r.priority for r in load.requests} == {0, 1, 2}
    assert len(load.requests) / (load.requests[-1].arrival_ps / 1e12) == pytest.approx(4, rel=0.03)


def test_the_default_has_the_lengths_of_the_trace():
    try:
        path = source_dir("azure-llm-2023") / "AzureLLMInferenceTrace_conv.csv"
        trace = AzureTrace(path=str(path)).load(0).requests
    except MissingDataError as missing:
        pytest.skip(str(missing))
    drawn = instantiate(many(50_000)).load(0).requests
    for field in ("prompt_tokens", "output_tokens"):
        measured, law = (np.array([getattr(r, field) for r in rs]) for rs in (trace, drawn))
        assert laws.ks(measured, law) < 0.03
        assert law.mean() == pytest.approx(measured.mean(), rel=0.03)
    product = [np.mean([r.prompt_tokens * r.output_tokens for r in rs]) for rs in (trace, drawn)]
    assert product[1] == pytest.approx(product[0], rel=0.05)


@pytest.mark.parametrize(
    "name", ["azure_conv", "azure_code", "llmservingsim_run", "llmservingsim_blocks"]
)
def test_readers_find_the_public_data(name, monkeypatch):
    try:
        monkeypatch.setenv("SERVESIM_DATA", str(data_dir()))
    except MissingDataError as missing:
        pytest.skip(str(missing))
    try:
        load = instantiate(node(name)).load(0)
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert len(load.requests) == load.counts["trace_rows"]


def test_a_missing_data_set_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("SERVESIM_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="SERVESIM_DATA") as caught:
        instantiate(node("azure_conv")).load(0)
    assert os.linesep not in str(caught.value)


def test_the_generic_trace_demands_what_cannot_be_guessed(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text("when,in,out\n1,5,5\n")
    given = {
        "path": str(path),
        "unit": "s",
        "origin": "zero",
        "columns": {"arrival": "when", "prompt_tokens": "in", "output_tokens": "out"},
    }
    full = OmegaConf.merge(node("trace"), given)
    assert len(instantiate(full).load(0).requests) == 1
    for key in ("path", "unit", "origin", "columns.arrival", "columns.prompt_tokens"):
        lacking = full.copy()
        OmegaConf.update(lacking, key, "???")
        with pytest.raises(MissingMandatoryValue):
            instantiate(lacking)
