"""Options of this folder's commands: option=value words."""

from collections.abc import Mapping, Sequence

from servesim.errors import ServesimError, UnknownChoiceError


def read(
    arguments: Sequence[str], defaults: Mapping[str, str], required: Sequence[str]
) -> dict[str, str]:
    """What is given, over `defaults`.

    Raises:
        ServesimError: a word is no option=value, or a required option is not given.
        UnknownChoiceError: there is no such option.
    """
    given = dict(defaults)
    known = (*required, *defaults)
    for word in arguments:
        name, equals, value = word.partition("=")
        if not equals:
            raise ServesimError(f"cannot read '{word}': expected option=value; see --help")
        if name not in known:
            raise UnknownChoiceError("option", name, known)
        given[name] = value
    for name in required:
        if not given.get(name):
            raise ServesimError(f"{name} must be given; see --help")
    return given
