import pytest

from servesim import checks
from servesim.errors import SettingError, UnknownChoiceError

NOT_NUMBERS = ["1", None, True, float("nan"), float("inf"), [1]]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.positive, [1, 0.5], [0, -1, *NOT_NUMBERS]),
        (checks.not_negative, [0, 0.0, 3], [-0.1, *NOT_NUMBERS]),
        (checks.fraction, [0, 0.5, 1], [-0.1, 1.1, *NOT_NUMBERS]),
        (checks.whole, [0, 7], [-1, 1.0, "1", True, None]),
        (checks.flag, [True, False], [0, 1, "true", None]),
    ],
)
def test_what_passes_and_what_is_refused(check, good, bad):
    for value in good:
        check("setting", value)
    for value in bad:
        with pytest.raises(SettingError, match=r"^setting=") as caught:
            check("setting", value)
        assert "\n" not in str(caught.value)


def test_bounds_are_named():
    checks.whole("n", 2, at_least=2)
    with pytest.raises(SettingError, match="n=1: must be 2 or more"):
        checks.whole("n", 1, at_least=2)
    with pytest.raises(SettingError, match=r"share=0: must be in \(0, 1\]"):
        checks.fraction("share", 0, open_at_zero=True)


def test_number_returns_a_float():
    assert isinstance(checks.number("x", 3), float)


def test_choice_names_the_known_ones():
    checks.choice("dtype", "fp8", ("bf16", "fp8"))
    with pytest.raises(UnknownChoiceError, match=r"unknown dtype 'fp9' .*did you mean 'fp8'"):
        checks.choice("dtype", "fp9", ("bf16", "fp8"))
    with pytest.raises(UnknownChoiceError):
        checks.choice("dtype", ["fp8"], ("bf16", "fp8"))
