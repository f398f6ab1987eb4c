"""Which cost of `conf/cost` a case is predicted with.

The one whose `fitted_on` is the case's model, GPU, tp, dtype, kv_dtype and engine family: kernel
tables before a regression, then the engine release closest to the case's. Else the roofline, which
was fitted to nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from servesim.app.paths import conf_dir
from validation.score.engines import Release, release_of

ROOFLINE = "roofline"
KINDS = {
    "servesim.cost.kernels.Kernels": "kernels",
    "servesim.cost.fitted.Fitted": "fitted",
    "servesim.cost.regression.Regression": "regression",
}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KEYS = ("fitted_on", "source")


@dataclass(frozen=True, slots=True)
class Cost:
    """An option of conf/cost.

    Attributes:
        option: its name.
        kind: "kernels", "fitted", "regression" or "roofline".
        fitted_on: model, gpu, tp, dtype, kv_dtype, engine.
        engine_version: of the engine that was measured.
    """

    option: str
    kind: str
    fitted_on: Mapping[str, object]
    engine_version: str = ""


def cost_for(asked: Mapping[str, object], version: str | None, folder: Path | None = None) -> Cost:
    """The best cost for a deployment.

    Args:
        asked: model (published name), gpu (published name), tp, dtype, kv_dtype, engine.
        version: the engine's release; None where it was not recorded, which takes the newest.
        folder: of the costs; None is conf/cost.
    """
    ranks = {kind: rank for rank, kind in enumerate(KINDS.values())}
    fitting = [c for c in costs_in(folder or conf_dir() / "cost") if c.fitted_on == asked]
    if not fitting:
        return Cost(ROOFLINE, ROOFLINE, {})
    return min(fitting, key=lambda c: (ranks[c.kind], _distance(c.engine_version, version)))


@cache
def costs_in(folder: Path) -> tuple[Cost, ...]:
    """Every fitted cost of a folder, by name."""
    found = []
    for path in sorted(folder.rglob("*.yaml")):
        head = _head(path.read_text(encoding="utf-8"))
        kind = KINDS.get(str(head.get("_target_")))
        if kind is not None:
            version = str(head["source"].get("engine_version", ""))
            option = path.relative_to(folder).with_suffix("").as_posix()
            found.append(Cost(option, kind, dict(head["fitted_on"]), version))
    return tuple(found)


def _head(text: str) -> dict[str, Any]:
    """`_target_`, `fitted_on` and `source` without reading the tables, which are long."""
    blocks = re.split(r"^(?=[A-Za-z_])", text, flags=re.MULTILINE)
    wanted = [b for b in blocks if b.partition(":")[0] in ("_target_", *_KEYS)]
    head: dict[str, Any] = yaml.load("".join(wanted), Loader=_LOADER) or {}
    return head | {key: head.get(key) or {} for key in _KEYS}


def _distance(measured: str, asked: str | None) -> tuple[int, ...]:
    """Smaller is closer; among equals the newer; of none asked for, the newest first."""
    at = _number(measured)
    if asked is None:
        return (0, -at)
    return (abs(at - _number(asked)), -at)


def _number(version: str) -> int:
    """Releases in a row: 0.11 … 0.99 before 1.0."""
    if not re.match(r"v?\d+\.\d+", version):
        return 0
    release: Release = release_of(version)
    return 1000 * release[0] + release[1]
