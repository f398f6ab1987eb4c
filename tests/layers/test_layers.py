"""Imports go down only (the table of layers is in the README)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = [
    {"records", "content", "gaps", "errors", "checks", "seeds", "units"},
    {"model", "hardware"},
    {"deployment"},
    {"policies", "speculation", "kv", "cost", "workload", "metrics"},
    {"scheduler"},
    {"engine"},
    {"app"},
    {"__main__"},
]
FLOOR = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
FLOOR["__init__"] = len(FLOORS)  # a package's front door may show what lies behind it
HOMES = {
    "simpy": ("servesim/engine/",),
    "hydra": ("servesim/app/", "experiments/", "validation/"),
    "torch": ("validation/",),
    "transformers": ("servesim/model/from_hf.py", "validation/"),
    "seaborn": ("experiments/", "validation/"),
    "matplotlib": ("experiments/", "validation/"),
}
SOURCES = sorted(
    p for d in ("servesim", "validation", "experiments") for p in ROOT.glob(f"{d}/**/*.py")
)


def imports(path):
    """(line, dotted name) of every import, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def part_of(path):
    return path.relative_to(ROOT / "servesim").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    name = path.relative_to(ROOT).as_posix()
    for line, imported in imports(path):
        package, _, rest = imported.partition(".")
        where = f"{name}:{line}: imports {imported}"
        if package in HOMES:
            assert name.startswith(HOMES[package]), f"{where}, which only {HOMES[package]} may"
        if name.startswith("servesim/"):
            assert package not in ("validation", "experiments", "tests"), where
            theirs, mine = rest.split(".")[0], part_of(path)
            if package == "servesim" and theirs != mine and theirs in FLOOR:
                floors = FLOOR[theirs], FLOOR[mine]
                assert floors[0] < floors[1] or floors == (0, 0), f"{where}, which is not below it"


def test_every_part_has_a_floor():
    parts = {part_of(path) for path in SOURCES if ROOT / "servesim" in path.parents}
    assert parts <= set(FLOOR)
