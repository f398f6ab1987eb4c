"""Cases as YAML files, both ways; keys are the fields of the classes.

The format is described, with examples, in validation/cases/README.md.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from servesim.errors import OutputError, ServesimError, SettingError, TraceError, UnknownChoiceError
from validation.cases.case import Case, Engine, Limits, Source
from validation.cases.workloads import KINDS, LAWS, Length, Prefix, Stage, Workload

__all__ = ["Case", "Engine", "Limits", "Source", "read_case", "write_case"]

Facts = TypeVar("Facts")
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_case(path: Path) -> Case:
    """The case in `path`, checked.

    Raises:
        TraceError: naming the file, and the key with the nearest valid one.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_YAML_LOADER)
        case = _case(content)
    except OSError as error:
        raise TraceError(str(path), None, f"cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TraceError(str(path), None, " ".join(str(error).split())) from None
    except ServesimError as error:
        raise TraceError(str(path), None, error.message) from None
    if case.name != path.stem:
        raise TraceError(str(path), None, f"name={case.name!r}: must be the file's name")
    return case


def write_case(case: Case, folder: Path) -> Path:
    """`folder`/NAME.yaml, which `read_case` reads to an equal case.

    Raises:
        OutputError: it cannot be written.
    """
    path = folder / f"{case.name}.yaml"
    text = yaml.dump(
        _plain(case),
        Dumper=_YAML_DUMPER,
        sort_keys=False,
        width=100,
        allow_unicode=True,
        default_flow_style=None,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from None
    return path


def _case(content: object) -> Case:
    given = dict(_mapping("case", content))
    given["source"] = _build(Source, "source", given.get("source"))
    given["engine"] = _build(Engine, "engine", given.get("engine"))
    given["limits"] = _build(Limits, "limits", given.get("limits") or {})
    given["workload"] = _workload(given.get("workload"))
    given["measured"] = _measured("measured", given.get("measured"))
    if given.get("measured_by_stage") is not None:
        stages = _list("measured_by_stage", given["measured_by_stage"])
        given["measured_by_stage"] = tuple(_measured("measured_by_stage", m) for m in stages)
    peers = _mapping("peers", given.get("peers") or {})
    given["peers"] = {name: _measured(f"peers.{name}", m) for name, m in peers.items()}
    given["notes"] = tuple(_list("notes", given.get("notes") or []))
    return _build(Case, "", given)


def _workload(content: object) -> Workload:
    given = dict(_mapping("workload", content))
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise UnknownChoiceError("workload.kind", kind, KINDS)
    for name in ("prompt", "output"):
        if name in given:
            given[name] = _length(f"workload.{name}", given[name])
    if given.get("prefix") is not None:
        given["prefix"] = _build(Prefix, "workload.prefix", given["prefix"])
    if given.get("stages") is not None:
        stages = _list("workload.stages", given["stages"])
        given["stages"] = tuple(_build(Stage, "workload.stages", stage) for stage in stages)
    if "overrides" in given:
        given["overrides"] = tuple(_list("workload.overrides", given["overrides"]))
    return _build(KINDS[kind], "workload", given)


def _length(where: str, content: object) -> Length:
    given = dict(_mapping(where, content))
    law = given.pop("law", None)
    if law not in LAWS:
        raise UnknownChoiceError(f"{where}.law", law, LAWS)
    return _build(LAWS[law], where, given)


def _measured(where: str, content: object) -> dict[str, dict[str, float]]:
    metrics = _mapping(where, content)
    return {metric: dict(_mapping(f"{where}.{metric}", row)) for metric, row in metrics.items()}


def _build(facts: type[Facts], where: str, content: object) -> Facts:
    given = _mapping(where, content)
    known = {f.name: f for f in fields(facts)}  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise UnknownChoiceError(f"key in {where}" if where else "key", key, known)
    for name, f in known.items():
        if name not in given and f.default is MISSING and f.default_factory is MISSING:
            raise SettingError(f"{where}.{name}" if where else name, None, "must be given")
    try:
        return facts(**given)
    except SettingError as error:
        raise (error.within(where) if where else error) from None


def _mapping(where: str, content: object) -> Mapping[str, Any]:
    if isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
        return content
    raise SettingError(where, content, "must be a mapping")


def _list(where: str, content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    raise SettingError(where, content, "must be a list")


def _plain(value: Any) -> Any:
    """Mappings, lists and scalars, without what is left at its default."""
    if hasattr(value, "__dataclass_fields__"):
        head = {name: getattr(value, name) for name in ("kind", "law") if hasattr(value, name)}
        return head | {
            f.name: _plain(getattr(value, f.name))
            for f in fields(value)
            if not _is_default(f, getattr(value, f.name))
        }
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value


def _is_default(f: Any, value: object) -> bool:
    if f.default_factory is not MISSING:
        return bool(value == f.default_factory())
    return f.default is not MISSING and bool(value == f.default)
