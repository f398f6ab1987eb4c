"""servesim's `hf` and the real scheduler of transformers, stepped side by side."""

import sys
from importlib.metadata import PackageNotFoundError, version

import pytest

from validation.conformance.hf_live import main
from validation.conformance.hf_trace import RELEASE


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


TORCH, TRANSFORMERS = installed("torch"), installed("transformers")


@pytest.mark.skipif(
    TORCH is None or TRANSFORMERS != RELEASE,
    reason=f"steps the real engine: needs torch (here {TORCH}) and transformers {RELEASE} "
    f"(here {TRANSFORMERS})",
)
@pytest.mark.parametrize("first", range(10_000, 10_500, 100))
def test_500_random_loads_agree_step_by_step(first, capsys):
    assert main([f"seeds={first}:{first + 100}"]) == 0
    assert ": 100 runs, " in capsys.readouterr().out


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_without_the_engine_it_says_so_in_one_line(module, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    assert main(["seeds=0:1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: needs transformers 5.23.0 and torch: ")
    assert err.count("\n") == 1
