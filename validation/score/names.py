"""Published names of models and GPUs, and the options of `conf/` that stand for them."""

import re
from functools import cache

from servesim.app.paths import conf_dir
from servesim.errors import UnknownChoiceError

_NAME = re.compile(r"^name: *['\"]?([^'\"#\n]+?)['\"]? *(?:#.*)?$", re.MULTILINE)


def option_of(group: str, name: str) -> str:
    """The option of conf/`group` for an option's name or a published one.

    Raises:
        UnknownChoiceError: there is none.
    """
    names = _names(group)
    if name in names:
        return name
    for option, published in names.items():
        if published == name:
            return option
    raise UnknownChoiceError(group, name, names)


def published_name(group: str, option: str) -> str:
    """What the option calls itself."""
    return _names(group)[option]


@cache
def _names(group: str) -> dict[str, str]:
    """Option → published name."""
    found = {}
    for path in sorted((conf_dir() / group).glob("*.yaml")):
        name = _NAME.search(path.read_text(encoding="utf-8"))
        found[path.stem] = name[1].strip() if name else path.stem
    return found
