"""Where the configuration files are, and which choices they make."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def conf_dir() -> Path:
    """`conf/` inside an installed wheel, or at the top of a checkout."""
    installed = _PACKAGE / "conf"
    return installed if installed.is_dir() else _PACKAGE.parent / "conf"


def groups() -> dict[str, list[str]]:
    """Options of each config group, e.g. {"policies/order": ["fcfs", ...]}."""
    root = conf_dir()
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*/*.yaml")):
        found.setdefault(path.parent.relative_to(root).as_posix(), []).append(path.stem)
    return found
