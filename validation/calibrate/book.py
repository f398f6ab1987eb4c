"""validation/calibration.yaml: what was tuned, on what, with how many parameters; and its uses.

    GPU (option of conf/hardware):
      ENGINE (vllm, sglang, trtllm; vllm_v0 below 0.8, vllm_v0_tp likewise on several ranks):
        host: {us: ..., ...}          # of every kernels cost of this GPU and engine
        all_reduce_share: of those costs, where it was tuned
        front_end: {queue_us: ..., ...}
        fitted_from: sources, and how many of their cases were tuned on and held out
        parameters: how many were free
        fitted_at: date
        residuals: {of: ..., levels: [...], ...}  # servesim/cost/residuals.py, of all measured runs
        error: {tuned: {metric: {cases, median, p90}}, held_out: ...}

The host times go into the costs when they are fitted; the front end's delays are an option of
conf/front_end.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from servesim.errors import OutputError, TraceError
from servesim.units import US_PER_S

DEFAULT = ("default", "any")  # GPU and engine of the entry for those without one
BOOK = Path(__file__).resolve().parents[1] / "calibration.yaml"
HEAD = """\
# Host time per step and front-end delays by GPU and engine, microseconds: in no kernel table, so
# tuned on measured runs by `python -m validation.calibrate`. Keys: validation/calibrate/book.py
"""


def read(path: Path = BOOK) -> dict[str, Any]:
    """GPU → engine → entry; empty where there is no such file.

    Raises:
        TraceError: the file is no such mapping.
    """
    if not path.is_file():
        return {}
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise TraceError(str(path), None, " ".join(str(error).split())) from None
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise TraceError(str(path), None, "must map GPUs to engines")
    return content


def write(gpu: str, engine: str, entry: dict[str, Any], path: Path = BOOK) -> None:
    """Put one entry in; the others stay.

    Raises:
        OutputError: the file cannot be written.
    """
    content = read(path)
    content.setdefault(gpu, {})[engine] = entry
    _write_all(content, path)


def write_residuals(found: Mapping[tuple[str, str], dict[str, Any]], path: Path = BOOK) -> None:
    """Put residuals into the entries of GPUs and engines, in place of those there.

    A GPU and engine without an entry has the host times of `default`, and its own residuals do not
    change that.

    Raises:
        OutputError: the file cannot be written.
    """
    content = read(path)
    for (gpu, engine), residuals in found.items():
        if engine in content.get(gpu, {}):
            content[gpu][engine]["residuals"] = residuals
    _write_all(content, path)


def _write_all(content: Mapping[str, Any], path: Path) -> None:
    ordered = {name: dict(sorted(content[name].items())) for name in sorted(content)}
    text = yaml.safe_dump(ordered, sort_keys=False, width=100, default_flow_style=None)
    write_text(path, HEAD + text)


def write_front_end(gpu: str, engine: str, entry: dict[str, Any], folder: Path) -> Path | None:
    """The option of conf/front_end for this GPU and engine, or None where no delay was tuned.

    Raises:
        OutputError: the file cannot be written.
    """
    if not entry["front_end"]:
        return None
    seconds = {
        key.replace("_us", "_s", 1): float(f"{value / US_PER_S:.4g}")
        for key, value in entry["front_end"].items()
    }
    lines = [
        f"# {engine} on {gpu}: between the client's clock and the engine's queue, on the hosts of",
        f"# {entry['fitted_from']} ({entry['fitted_at']})",
        f"# python -m validation.calibrate cases=... gpu={gpu} engine={engine} write=true",
        "_target_: servesim.engine.front_end.FrontEnd",
        *(f"{key}: {seconds.get(key, 0.0):g}" for key in ("queue_s", "queue_s_per_prompt_token")),
        "output_s: 0 # not told apart from queue_s by a TTFT",
    ]
    path = folder / f"{engine}_{gpu}.yaml"
    write_text(path, "\n".join(lines) + "\n")
    return path


def write_text(path: Path, text: str) -> None:
    """Write a file, or OutputError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from None
