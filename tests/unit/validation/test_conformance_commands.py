"""`generate` and `fuzz` where the vLLM they need is not there, and their arguments."""

import sys
from types import SimpleNamespace

import pytest

from validation.conformance import fuzz, generate, real_vllm
from validation.conformance.options import parse

COMMANDS = [(generate.main, ["out=t.json.gz"]), (fuzz.main, [])]


@pytest.mark.parametrize(("main", "more"), COMMANDS)
def test_without_vllm_one_line_says_so(main, more, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert main(["release=0.20", "seeds=0:3", *more]) == 2
    assert capsys.readouterr().err == "error: needs vllm 0.20, and vllm is not installed\n"


@pytest.mark.parametrize(("main", "more"), COMMANDS)
def test_another_release_is_named(main, more, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.30.1"))
    assert main(["release=0.33", *more]) == 2
    assert capsys.readouterr().err == "error: needs vllm 0.33, and vllm 0.30.1 is installed\n"


def test_a_patch_release_will_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.33.2"))
    real_vllm.require("0.33")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("release=0.3", "unknown release '0.3' (known: 0.11, 0.15, 0.20, 0.32, 0.33)"),
        ("seed=3", "unknown argument 'seed' (known: out, release, seeds); did you mean 'seeds'?"),
        ("seeds=9", "seeds='9': must be first:end, such as 0:200"),
        ("seeds=9:9", "seeds='9:9': must be first:end, such as 0:200"),
        ("out=t.json", "out='t.json': must be a file name in .json.gz"),
    ],
)
def test_a_wrong_argument_is_named(argument, words, capsys):
    assert generate.main([argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words}")


def test_arguments_have_defaults():
    options = parse([])
    assert (options.release, options.seeds, options.out) == ("0.33", range(200), None)
