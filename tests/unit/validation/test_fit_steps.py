"""The regression of whole steps on a table that the test writes from coefficients it knows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from servesim.cost.regression import Regression, Terms
from servesim.errors import MissingDataError, SettingError, TraceError, UnknownChoiceError
from validation.data import source_dir
from validation.fit import steps
from validation.fit.__main__ import main, parse, request_of
from validation.fit.sources.splitwise import Request, fit
from validation.fit.targets import CONF
from validation.sources.splitwise import COLUMNS, FILE

TRUTH = Terms(30_000, 60.0, 4, 40.0, 2048, 0.2, 0.004, 200.0, 15_000)
SIZES = [(2**i, 1) for i in range(7, 14)] + [(512, 2**i) for i in range(1, 7)]


def of(tokens: float, requests: int, kv: float, pairs: float, chunk: bool) -> float:
    columns = (np.array([float(x)]) for x in (tokens, requests, kv, pairs))
    one = steps.Steps(*columns, np.array([chunk]), np.ones(1), np.zeros(1))
    return float(steps.predicted_us(one, TRUTH)[0])


def wobble(*at: int) -> float:
    """±1 %, the same in every run; stands for the noise of a measurement."""
    return 1 + 0.01 * ((7919 * sum(at) % 101) / 50 - 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = []
    for prompt, batch in SIZES:
        tokens = prompt * batch
        prompt_us = of(tokens, batch, tokens, tokens * prompt / 2, True) * wobble(prompt, batch)
        token_us = of(batch, batch, batch * (prompt + 64), 0, False) * wobble(batch, prompt, 1)
        e2e = (prompt_us + 127 * token_us) / 1e3
        times = (prompt_us / 1e3, token_us / 1e3, e2e)
        rows.append(("llama2-70b", "h100-80gb", 8, prompt, batch, 128, *times))
    root = tmp_path_factory.mktemp("data") / "splitwise-sim"
    root.mkdir()
    lines = [",".join(COLUMNS), *(",".join(map(str, row)) for row in rows)]
    (root / FILE).write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture(scope="module")
def tree(root: Path) -> dict[str, Any]:
    """The YAML that the command writes."""
    out = root.parent / "cost.yaml"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SERVESIM_DATA", str(root.parent))
        assert main(["source=splitwise", "gpu=h100", "model=llama2-70b", "tp=8", f"out={out}"]) == 0
    return dict(yaml.safe_load(out.read_text()))


def test_held_out_batches_are_predicted(tree: dict[str, Any]) -> None:
    errors = tree["held_out_error"]
    assert errors["step"]["points"] == 2 * len(SIZES)
    assert errors["step"]["median"] < 0.015
    assert errors["prefill_step"]["p90"] < 0.05
    decode = tree["residuals"]["decode"]
    assert decode[0] < 0 < decode[-1] < 0.1
    assert tree["fit_range"]["tokens"] == [1, 32768]


def test_known_coefficients_are_recovered(tree: dict[str, Any]) -> None:
    found = tree["coefficients"]
    assert found["step_us"] == pytest.approx(TRUTH.step_us, rel=0.03)
    assert found["chunk_us"] == pytest.approx(TRUTH.chunk_us, rel=0.2)
    large = found["us_per_token"] + found["us_per_spilled_token"]
    assert large == pytest.approx(TRUTH.us_per_token + TRUTH.us_per_spilled_token, rel=0.1)


def test_the_yaml_is_the_cost(tree: dict[str, Any]) -> None:
    assert tree["_target_"] == "servesim.cost.regression.Regression"
    cost = Regression(**{key: value for key, value in tree.items() if not key.startswith("_")})
    assert cost.fitted_on["gpu"] == "H100 SXM5"


def test_what_was_not_measured_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownChoiceError, match=r"unknown gpu 'v100-80gb'"):
        fit(root, Request("v100", "llama2-70b", 8))
    with pytest.raises(UnknownChoiceError, match=r"unknown model 'llama2-7b'.*'llama2-70b'"):
        fit(root, Request("h100", "llama2-7b", 8))
    with pytest.raises(UnknownChoiceError, match=r"unknown tp measured.*'4'.*known: 8"):
        fit(root, Request("h100", "llama2-70b", 4))
    with pytest.raises(SettingError, match=r"tp=None: must be given"):
        parse(["source=splitwise", "gpu=h100", "model=llama2-70b"])
    few = "\n".join((root / FILE).read_text().splitlines()[:4])
    (tmp_path / FILE).write_text(few)
    with pytest.raises(TraceError, match=r"3 usable batches .*: too few"):
        fit(tmp_path, Request("h100", "llama2-70b", 8))


def test_a_shipped_regression_comes_from_its_command() -> None:
    try:
        root = source_dir("splitwise-sim")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    text = (CONF / "cost" / "llama2_70b_h100_tp2.yaml").read_text()
    command = text.splitlines()[0].removeprefix("# python -m validation.fit ")
    again, shipped = fit(root, request_of(parse(command.split()))).tree, yaml.safe_load(text)
    assert again["fit_range"] == shipped["fit_range"]
    # another solver version may stop at a slightly different point
    for name, value in shipped["coefficients"].items():
        assert again["coefficients"][name] == pytest.approx(value, rel=0.02, abs=1e-3), name
    made = again["held_out_error"]["step"]["median"]
    assert made == pytest.approx(shipped["held_out_error"]["step"]["median"], abs=0.005)
