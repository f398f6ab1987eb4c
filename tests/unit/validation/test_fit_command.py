"""The command's arguments, where data is looked for, and the shipped YAMLs against real data."""

from pathlib import Path

import pytest
import yaml

from servesim.cost.fitted import Fitted
from servesim.errors import MissingDataError
from validation.data import data_dir, source_dir
from validation.fit.__main__ import main, parse, request_of
from validation.fit.sources.llmservingsim import fit
from validation.fit.targets import CONF, deployment

SHIPPED = ("llama3.1_8b_rtx_pro_6000", "llama3.1_8b_rtx_4090")
WANTED = ["source=llmservingsim", "gpu=RTX4090", "model=Llama-3.1-8B"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu"], "argument='gpu': must be key=value"),
        (["source=llmservingsim", "gpu=RTX4090"], "model=None: must be given"),
        (["source=llmservingsin", *WANTED[1:]], "did you mean 'llmservingsim'?"),
        ([*WANTED, "polt=x.png"], "unknown setting 'polt'"),
        ([*WANTED, "host_step_us=fast"], "host_step_us='fast': must be a finite number"),
        ([*WANTED, "host_step_us=-5"], "host_step_us=-5: must be 0 or more"),
        ([*WANTED, "tp=0"], "tp=0: must be 1 or more"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "llmservingsim").mkdir()
    monkeypatch.setenv("SERVESIM_DATA", str(tmp_path))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_the_data_folder_is_the_one_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVESIM_DATA", str(tmp_path))
    assert data_dir() == tmp_path
    with pytest.raises(MissingDataError, match=r"no llmservingsim/ in .*LLMServingSim at 5daddb2"):
        source_dir("llmservingsim")
    monkeypatch.setenv("SERVESIM_DATA", str(tmp_path / "gone"))
    with pytest.raises(MissingDataError, match=r"set SERVESIM_DATA to a folder that holds"):
        data_dir()


def shipped_tree(name: str) -> tuple[list[str], dict[str, dict[str, object]]]:
    """The arguments in a shipped YAML's first line, and its tree."""
    text = (CONF / "cost" / f"{name}.yaml").read_text()
    command = text.splitlines()[0].removeprefix("# python -m validation.fit ")
    return command.split(), yaml.safe_load(text)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_costs_bind_and_keep_their_promise(name: str) -> None:
    arguments, tree = shipped_tree(name)
    request = request_of(parse(arguments))
    cost = Fitted(**{key: value for key, value in tree.items() if not key.startswith("_")})
    cost.bind(deployment(request.gpu, request.model, request.tp))
    assert cost.held_out_error["step"]["median"] <= 0.03
    assert cost.held_out_error["step"]["p90"] <= 0.10


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_coefficients_come_from_their_command(name: str) -> None:
    try:
        root = source_dir("llmservingsim")
    except MissingDataError as missing:
        pytest.skip(str(missing))
    arguments, tree = shipped_tree(name)
    again = fit(root, request_of(parse(arguments))).tree
    assert again["fit_range"] == tree["fit_range"]
    for part, values in tree["coefficients"].items():
        for key, value in values.items():
            # another solver version may stop at a slightly different point
            made = again["coefficients"][part][key]
            assert made == pytest.approx(value, rel=0.02, abs=1e-3), f"{part}.{key}"


def test_without_a_place_the_cost_is_written_where_it_overwrites_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        data = data_dir()
    except MissingDataError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("SERVESIM_DATA", str(data.resolve()))
    monkeypatch.chdir(tmp_path)
    assert (
        main(["source=llmservingsim", "gpu=RTX4090", "model=Llama-3.1-8B", "host_step_us=600"]) == 0
    )
    made = tmp_path / "outputs" / "cost" / "llama-3.1-8b_rtx4090.yaml"
    assert f"wrote {made.relative_to(tmp_path)}" in capsys.readouterr().out
    shipped = yaml.safe_load((CONF / "cost" / "llama3.1_8b_rtx_4090.yaml").read_text())
    assert yaml.safe_load(made.read_text())["fitted_on"] == shipped["fitted_on"]
