"""What every fit hands to the command, whatever its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from servesim.deployment import Deployment
from validation.fit.check import Part
from validation.sources.tables import Array

DIGITS = 4  # of a coefficient; what is measured is good to two or three


@dataclass(frozen=True)
class Drawn:
    """A curve to look at: measured points, and what was fitted to them.

    Attributes:
        axis: name of `x`.
        unit: what is measured, with its unit.
        x: measured points.
        measured: at `x`.
        fitted: at `x`.
    """

    axis: str
    unit: str
    x: Array
    measured: Array
    fitted: Array


@dataclass(frozen=True)
class Fit:
    """A cost that was fitted.

    Attributes:
        tree: of the cost's YAML.
        errors: what it was checked on, by part; whole steps last.
        caption: what to know about the errors, one line.
        header: comment lines of the YAML, below its command.
        curves: what `plot=` draws beside the errors.
    """

    tree: dict[str, Any]
    errors: list[Part]
    caption: str = ""
    header: tuple[str, ...] = ()
    curves: tuple[Drawn, ...] = field(default=(), repr=False)


def fitted_on(target: Deployment) -> dict[str, Any]:
    """What the cost holds for, as its YAML says it."""
    return {
        "model": target.model.name,
        "gpu": target.gpu.name,
        "tp": target.tp,
        "dtype": target.dtype,
        "kv_dtype": target.kv_dtype,
        "engine": target.engine,
    }


def rounded(tree: Any) -> Any:
    """Plain numbers of DIGITS significant digits, whole ones as integers."""
    if isinstance(tree, Mapping):
        return {key: rounded(value) for key, value in tree.items()}
    if isinstance(tree, Sequence | np.ndarray):
        return [rounded(value) for value in tree]
    value = float(np.format_float_positional(tree, DIGITS, unique=False, fractional=False))
    return int(value) if value.is_integer() else value


def rounded_tables(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Kernel tables in plain numbers: rounded microseconds, knots as they were measured.

    A decode table is read by sequences × context, whose products have to coincide exactly.
    """
    return {
        name: part and {key: _plain(key, value) for key, value in part.items()}
        for name, part in tables.items()
    }


def _plain(key: str, value: Any) -> Any:
    return rounded(value) if key == "us" or np.isscalar(value) else [int(x) for x in value]
