import pytest

from servesim.errors import SettingError, UnknownChoiceError
from servesim.hardware.gpu import GPU


def test_fp16_runs_at_the_rate_of_bf16():
    gpu = GPU("g", 80, 2000, {"bf16": 300, "fp8": 600}, 100)
    assert gpu.tflops("fp16") == gpu.tflops("bf16") == 300
    assert gpu.tflops("fp8") == 600


def test_a_dtype_that_it_does_not_have_is_named():
    gpu = GPU("A100", 80, 2000, {"bf16": 300}, 100)
    with pytest.raises(UnknownChoiceError, match=r"unknown dtype for A100 'fp8' \(known: bf16\)"):
        gpu.tflops("fp8")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"memory_gib": 0}, "memory_gib=0"),
        ({"memory_bandwidth_gb_s": -1}, "memory_bandwidth_gb_s=-1"),
        ({"link_gb_s": None}, "link_gb_s=None"),
        ({"dense_tflops": {"bf16": 0}}, "dense_tflops.bf16=0"),
    ],
)
def test_bad_figures_are_named(change, named):
    figures = {
        "name": "g",
        "memory_gib": 80,
        "memory_bandwidth_gb_s": 2000,
        "dense_tflops": {"bf16": 300},
        "link_gb_s": 100,
    }
    with pytest.raises(SettingError, match=f"^{named}: "):
        GPU(**{**figures, **change})
