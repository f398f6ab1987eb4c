"""python -m validation.fit.batch [plan=FILE] [out=conf/cost/kernels] [only=TEXT].

Writes the kernel cost of every deployment of a plan (validation/fit/plan.yaml), each with the
`python -m validation.fit` command that makes it alone. `only` keeps the names that contain it.
"""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from servesim.errors import ServesimError, SettingError, UnknownChoiceError
from validation.cases.published import model_stem
from validation.data import source_dir
from validation.fit.__main__ import source_of, write, yaml_text
from validation.fit.kernels import deployments
from validation.fit.rows import kv_capacity
from validation.fit.targets import TARGETS

PLAN = Path(__file__).with_name("plan.yaml")
OUT = deployments.CONF / "cost" / "kernels"
KEYS = ("plan", "out", "only")
MANY = {"models": "model", "tp": "tp", "dtype": "dtype", "kv_dtype": "kv_dtype"}
USABLE_MEMORY = 0.92  # of a GPU: weights beyond it leave no KV cache


@dataclass(frozen=True)
class Planned:
    """One cost to be made.

    Attributes:
        source: whose measurements.
        request: its settings, as the source's module has them.
    """

    source: str
    request: Any

    @property
    def name(self) -> str:
        """ENGINE_GPU_MODEL_tpN_DTYPE, of YAML names; a KV cache in bf16 is not named."""
        engine = getattr(self.request, "engine", "vllm")
        dtype = getattr(self.request, "dtype", "bf16")
        kv = "_kv_fp8" if getattr(self.request, "kv_dtype", "bf16") == "fp8" else ""
        return f"{engine}_{self.hardware}_{self.model}_tp{self.request.tp}_{dtype}{kv}"

    @property
    def hardware(self) -> str:
        """YAML name of the GPU."""
        gpu = str(self.request.gpu)
        return TARGETS[gpu].hardware if gpu in TARGETS else deployments.hardware_of(gpu)

    @property
    def model(self) -> str:
        """YAML name of the model."""
        return model_stem(self.request.model) or str(self.request.model)

    @property
    def arguments(self) -> list[str]:
        """Of the command that makes it alone."""
        asked = [
            f"{field.name}={getattr(self.request, field.name)}"
            for field in fields(self.request)
            if getattr(self.request, field.name) != field.default
        ]
        return [f"source={self.source}", *asked]

    def impossible(self) -> str | None:
        """Why the deployment cannot be, or None."""
        request = self.request
        dtype, kv_dtype = (getattr(request, name, "bf16") for name in ("dtype", "kv_dtype"))
        engine = getattr(request, "engine", "vllm")
        try:
            target = deployments.deployment(
                self.hardware, self.model, request.tp, dtype, kv_dtype, engine
            )
        except SettingError as error:
            return error.message
        if kv_capacity(target, USABLE_MEMORY) <= 0:
            return f"the weights do not fit into {target.gpu.memory_gib:g} GiB"
        return None


def main(arguments: list[str]) -> int:
    """Make the costs; 1 if one could not be made, 2 after one line about the user's mistake."""
    try:
        settings = _settings(arguments)
        plan = list(planned(Path(settings.get("plan", PLAN))))
    except ServesimError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = 0
    for one in plan:
        if settings.get("only", "") not in one.name:
            continue
        try:
            _make(one, Path(settings.get("out", OUT)))
        except ServesimError as error:
            failed += 1
            print(f"error: {one.name}: {error}", file=sys.stderr)
    return 1 if failed else 0


def planned(path: Path) -> Iterator[Planned]:
    """Every deployment of a plan.

    Raises:
        SettingError: an entry has no source, or a value that its request refuses.
        UnknownChoiceError: an entry has a key or a source that is not known.
    """
    for number, entry in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))):
        where = f"{path.name}, entry {number}"
        if "source" not in entry:
            raise SettingError(where, sorted(entry), "has no source")
        request = source_of(entry).Request
        known = [field.name for field in fields(request)]
        same = {key: value for key, value in entry.items() if key not in (*MANY, "source")}
        many = {MANY[key]: values for key, values in entry.items() if key in MANY}
        for key in (*same, *many):
            if key not in known:
                raise UnknownChoiceError(f"{where}: key", key, known)
        for values in product(*many.values()):
            asked = same | dict(zip(many, values, strict=True))
            yield Planned(entry["source"], request(**asked))


def _make(one: Planned, folder: Path) -> None:
    why = one.impossible()
    if why:
        print(f"left out {one.name}: {why}")
        return
    source = importlib.import_module(f"validation.fit.sources.{one.source}")
    done = source.fit(source_dir(source.FOLDER), one.request)
    write(folder / f"{one.name}.yaml", yaml_text(done, one.arguments))


def _settings(arguments: list[str]) -> dict[str, str]:
    settings = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise SettingError("argument", argument, f"must be key=value, with {', '.join(KEYS)}")
        if key not in KEYS:
            raise UnknownChoiceError("setting", key, KEYS)
        settings[key] = value
    return settings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
