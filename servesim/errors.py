"""One exception class per user mistake; each subclasses the closest builtin.

The message is one line that names what was set, the value, why it is wrong and, where there is
one, the nearest valid choice. The command line prints it after `error:` and exits with 2.
"""

import difflib
from collections.abc import Iterable


def nearest(value: object, known: Iterable[str]) -> str:
    """` (known: a, b); did you mean 'b'?`, or as much of it as there is to say."""
    names = sorted(known)
    if not names:
        return ""
    close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f" (known: {', '.join(names)}){hint}"


class ServesimError(Exception):
    """Base of every mistake that is the user's to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class SettingError(ServesimError, ValueError):
    """A setting has a value that it cannot have."""

    def __init__(self, setting: str, value: object, reason: str) -> None:
        super().__init__(f"{setting}={value!r}: {reason}")
        self.setting, self.value, self.reason = setting, value, reason

    def __reduce__(self) -> tuple[type, tuple[str, object, str]]:
        return type(self), (self.setting, self.value, self.reason)

    def within(self, group: str) -> "SettingError":
        """The same error with the setting's full name, `group.setting`.

        A profile may refuse a policy, whose name is full already.
        """
        if self.setting.startswith("policies."):
            return self
        return type(self)(f"{group}.{self.setting}", self.value, self.reason)


class UnknownChoiceError(ServesimError, LookupError):
    """A name that is none of the known ones."""

    def __init__(self, what: str, value: object, known: Iterable[str]) -> None:
        self.what, self.value, self.known = what, value, tuple(known)
        super().__init__(f"unknown {what} '{value}'{nearest(value, self.known)}")

    def __reduce__(self) -> tuple[type, tuple[str, object, tuple[str, ...]]]:
        return type(self), (self.what, self.value, self.known)


class TraceError(ServesimError, ValueError):
    """A trace file, or a row of one, that cannot be used."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {reason}")
        self.file, self.line, self.reason = file, line, reason

    def __reduce__(self) -> tuple[type, tuple[str, int | None, str]]:
        return type(self), (self.file, self.line, self.reason)


class ModelConfigError(ServesimError, ValueError):
    """A model's config.json that cannot be read, or a key of it that cannot be so.

    `missing` names the key that is not there, where that is all that is wrong.
    """

    def __init__(self, file: str, reason: str, missing: str = "") -> None:
        super().__init__(f"{file}: {reason}")
        self.file, self.reason, self.missing = file, reason, missing

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.file, self.reason, self.missing)


class CapacityError(ServesimError, ValueError):
    """The model leaves no room for a KV cache on this hardware."""


class CostMismatchError(ServesimError, ValueError):
    """A fitted cost is asked about a model, GPU, tp, dtype or engine that it was not fitted on."""


class LivelockError(ServesimError, RuntimeError):
    """An engine whose requests preempt each other for ever."""


class OutputError(ServesimError, OSError):
    """A result cannot be written where it was asked to go."""


class MissingDataError(ServesimError, FileNotFoundError):
    """A public data set that is not part of the repository is not where it was looked for."""
