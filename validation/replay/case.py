"""A measured run and the settings that simulate it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from servesim.errors import MissingDataError, ServesimError, TraceError, UnknownChoiceError
from validation.compare.statistics import ServedRequest
from validation.data import data_dir

CASES = Path(__file__).resolve().parent.parent / "cases"
_FIELDS = ("queued_ts", "first_token_ts", "last_token_ts", "output_toks")
# rows of LLMServingSim's summary.txt, milliseconds: name → (our name, our unit in ms)
_PEER_ROWS = {"TTFT": ("TTFT, s", 1e3), "TPOT": ("TPOT, ms", 1.0), "Latency": ("E2E, s", 1e3)}
_PEER_STATISTICS = {"Mean": "mean", "Median": "p50", "P90": "p90", "P99": "p99"}


@dataclass(frozen=True, slots=True)
class Case:
    """One measured run.

    Attributes:
        name: file name without its ending.
        measured: per-request stamps, below the data directory.
        overrides: settings of servesim.
        peer_name: another simulator, or "".
        peer_summary: its own prediction of this run, below the data directory.
    """

    name: str
    measured: str
    overrides: tuple[str, ...]
    peer_name: str = ""
    peer_summary: str = ""


def load_case(name: str) -> Case:
    """A case of `validation/cases/` by name."""
    path = CASES / f"{name}.yaml"
    if not path.is_file():
        raise UnknownChoiceError("case", name, [p.stem for p in CASES.glob("*.yaml")])
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    peer = content.get("peer") or {}
    return Case(
        name=name,
        measured=content["measured"],
        overrides=tuple(content["overrides"]),
        peer_name=peer.get("name", ""),
        peer_summary=peer.get("summary", ""),
    )


def read_measured(case: Case) -> list[ServedRequest]:
    """Per-request times of the measured run.

    Raises:
        MissingDataError: where the file is absent.
        TraceError: naming file and line.
    """
    path = _existing(case.measured)
    served = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            arrival, first, last, tokens = (row[field] for field in _FIELDS)
            served.append(ServedRequest(float(arrival), float(first), float(last), int(tokens)))
        except (ValueError, TypeError) as error:
            raise TraceError(str(path), number, f"not a request ({error})") from None
        except KeyError as error:
            raise TraceError(str(path), number, f"lacks {error}") from None
    return served


def read_peer(case: Case) -> dict[str, dict[str, float]]:
    """Peer → its predicted statistics; empty where the case names none."""
    if not case.peer_summary:
        return {}
    path = _existing(case.peer_summary)
    predicted: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"(\w+) (\w+)\s+([\d.]+)\s+([\d.]+)\s", line)
        if found and found[1] in _PEER_ROWS and found[2] in _PEER_STATISTICS:
            name, unit_ms = _PEER_ROWS[found[1]]
            predicted[f"{name}, {_PEER_STATISTICS[found[2]]}"] = float(found[4]) / unit_ms
    if not predicted:
        raise ServesimError(f"{path}: no prediction found in it")
    return {case.peer_name: predicted}


def _existing(relative: str) -> Path:
    path = data_dir() / relative
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file; see validation/sources/README.md")
    return path
