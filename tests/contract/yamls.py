"""The YAML files of a config group, and a test over each of them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

CONF = Path(__file__).parents[2] / "conf"


def of(group: str) -> list[Path]:
    """A group's files; a group without any is a mistake in the test."""
    found = sorted((CONF / group).glob("*.yaml"))
    if not found:
        raise FileNotFoundError(f"conf/{group} holds no YAML")
    return found


def each(group: str) -> Callable[..., Any]:
    """Run the test once per file of the group, as `path`."""
    return pytest.mark.parametrize("path", of(group), ids=lambda path: path.stem)


def tree(path: Path) -> Any:
    """The file as it is, neither composed nor resolved."""
    return OmegaConf.load(path)


@cache
def stems(group: str) -> dict[str, str]:
    """Name in the file → the file's own, of a group whose files have names."""
    named = [(tree(path).name, path.stem) for path in of(group)]
    assert len(dict(named)) == len(named), f"two files of conf/{group} have the same name"
    return dict(named)
