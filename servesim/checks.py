"""Range checks on settings, each one line at the call site and one line for the user."""

import math

from servesim.errors import SettingError, UnknownChoiceError

MOST_GIB = 2**30  # far above any machine; a larger value is a slip, and its bytes overflow a float


def number(setting: str, value: object) -> float:
    """`value` as a finite float, or a SettingError."""
    if not isinstance(value, bool) and isinstance(value, int | float):
        try:
            amount = float(value)
        except OverflowError:  # an integer beyond the range of floats
            amount = math.inf
        if math.isfinite(amount):
            return amount
    raise SettingError(setting, value, "must be a finite number")


def positive(setting: str, value: object) -> None:
    """Refuse what is not a number above zero."""
    if number(setting, value) <= 0:
        raise SettingError(setting, value, "must be above 0")


def not_negative(setting: str, value: object) -> None:
    """Refuse what is not a number of at least zero."""
    if number(setting, value) < 0:
        raise SettingError(setting, value, "must be 0 or more")


def size_gib(setting: str, value: object) -> None:
    """Refuse what is no amount of memory: below zero, or above 2**30 GiB."""
    not_negative(setting, value)
    if number(setting, value) > MOST_GIB:
        raise SettingError(setting, value, f"must be {MOST_GIB:,} GiB or less")


def fraction(setting: str, value: object, *, open_at_zero: bool = False) -> None:
    """Refuse what is not in [0, 1] (or (0, 1] with `open_at_zero`)."""
    if not 0 <= number(setting, value) <= 1 or (open_at_zero and value == 0):
        raise SettingError(setting, value, f"must be in {'(0' if open_at_zero else '[0'}, 1]")


def whole(setting: str, value: object, *, at_least: int = 0) -> None:
    """Refuse what is not an integer of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise SettingError(setting, value, "must be a whole number")
    if value < at_least:
        raise SettingError(setting, value, f"must be {at_least} or more")


def flag(setting: str, value: object) -> None:
    """Refuse what is not true or false."""
    if not isinstance(value, bool):
        raise SettingError(setting, value, "must be true or false")


def text(setting: str, value: object) -> None:
    """Refuse what is not text, or is empty."""
    if not isinstance(value, str) or not value:
        raise SettingError(setting, value, "must be text (quoted, where it looks like a number)")


def choice(setting: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse what is none of `known`."""
    if value not in known:
        raise UnknownChoiceError(setting, value, known)
