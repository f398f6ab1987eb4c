"""Times that no kernel table holds: host and front end, by GPU and engine family, from one file."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from servesim.cost.kernel_timer import Host
from servesim.errors import TraceError

FILE = Path(__file__).resolve().parents[2] / "calibration.yaml"
DEFAULT = ("default", "any")
TUNED = ("all_reduce_share", "residuals")
WHERE_TUNED = ("launch_us_per_layer",)  # of the host's times, stated only if an entry has them


def host_of(hardware: str, engine: str, file: Path = FILE) -> tuple[dict[str, float], str]:
    """Host times of an engine family on a GPU (its YAML's name), and where they are from.

    Raises:
        TraceError: the file does not hold what it should.
    """
    gpu, family, entry = _entry(hardware, engine, file)
    for key in ("host", "fitted_from"):
        if key not in entry:
            raise TraceError(str(file), None, f"has no '{gpu}.{family}.{key}'")
    known = [field.name for field in fields(Host)]
    for name in entry["host"]:
        if name not in known:
            reason = f"'{gpu}.{family}.host.{name}' is none of {', '.join(known)}"
            raise TraceError(str(file), None, reason)
    stated = [name for name in known if name in entry["host"] or name not in WHERE_TUNED]
    host = {name: float(entry["host"].get(name, 0.0)) for name in stated}
    return host, f"{file.name}, {gpu}.{family}: {entry['fitted_from']}"


def tuned_of(hardware: str, engine: str, file: Path = FILE) -> dict[str, Any]:
    """`all_reduce_share` and `residuals` of a cost's YAML, where runs were tuned on.

    Raises:
        TraceError: the file does not hold what it should.
    """
    _, _, entry = _entry(hardware, engine, file)
    return {key: entry[key] for key in TUNED if key in entry}


def own_host_of(hardware: str, engine: str, file: Path = FILE) -> dict[str, float] | None:
    """Host times that were tuned for this very engine on this GPU; those not named are zero.

    Raises:
        TraceError: the file does not hold what it should.
    """
    gpu, family, _ = _entry(hardware, engine, file)
    return host_of(hardware, engine, file)[0] if (gpu, family) == (hardware, engine) else None


def _entry(hardware: str, engine: str, file: Path) -> tuple[str, str, dict[str, Any]]:
    """GPU, family and entry of the file that stand for an engine on a GPU."""
    tree: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    for gpu, family in ((hardware, engine), DEFAULT):
        entry = (tree.get(gpu) or {}).get(family)
        if entry is not None:
            return gpu, family, entry
    raise TraceError(str(file), None, f"has no '{'.'.join(DEFAULT)}'")
