"""A Hugging Face config.json as a model: its layers, parameters, weight and KV bytes.

The JSON alone is read: no model code runs and nothing is fetched. What a family adds to the
common keys is in one file of `servesim/model/families`; the folder is the table. A key that the
file needs and lacks is looked up in the configuration class of transformers, where that is
installed, so its presence can turn a refusal into an answer and never one answer into another.
"""

import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from servesim import checks
from servesim.errors import ModelConfigError, ServesimError
from servesim.model import families, generic, quant_config, towers
from servesim.model.config import Config
from servesim.model.spec import ModelSpec

MOST_BYTES = 10_000_000
# tens to hundreds of times what the largest published models have
MOST_PARAMETERS = 10**14
MOST_KV_BYTES = 10**9
MOST_STATE_BYTES = 10**12
Reader = Callable[[Config], ModelSpec]
_NESTED = ("text_config", "llm_config", "language_config")
_SHARED_KEYS = (
    "model_type",
    "tie_word_embeddings",
    "vocab_size",
    "dtype",
    "torch_dtype",
    "expert_dtype",
)


def from_hf(source: str | Path) -> ModelSpec:
    """The model of a config.json, of a folder that holds one, or of a cached Hugging Face id.

    An id (`org/name`) is looked up in the local cache only (HF_HUB_CACHE, HF_HOME). Where the
    configuration does not say how weights are quantised, ModelOpt's hf_quant_config.json beside
    it does.

    Raises:
        ModelConfigError: the file is absent, no model configuration, or has a key that cannot be.
    """
    name = str(source)
    try:
        path = _find(name)
        keys = _load(path)
        quant = path.with_name(path.name.removesuffix("config.json") + "hf_quant_config.json")
        if "quantization_config" not in keys and quant != path and quant.is_file():
            keys |= {"quantization_config": _load(quant).get("quantization")}
    except (OSError, RuntimeError) as error:  # RuntimeError: the home of an unknown user
        raise ModelConfigError(name, f"cannot be read: {error}") from error
    return _model(str(path), keys, name)


def published(name: str, **keys: Any) -> ModelSpec:
    """The model of published values, under the key names of its config.json.

    Raises:
        ModelConfigError: a key is missing or has a value that it cannot have.
    """
    checks.text("name", name)
    return _model(name, keys, name)


def _find(source: str) -> Path:
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise ModelConfigError(source, "is a folder without a config.json")
        return path
    if path.is_file():
        return path
    if path.exists():
        raise ModelConfigError(source, "is not a regular file")
    cached = _cached(source) if source.count("/") == 1 and path.suffix != ".json" else None
    if cached is None:
        raise ModelConfigError(source, "no such file, folder or locally cached Hugging Face id")
    return cached


def _cached(model_id: str) -> Path | None:
    """config.json of the snapshot that `main` names, else of the last by name."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    folder = hub / f"models--{model_id.replace('/', '--')}"
    main = folder / "refs" / "main"
    found = sorted(folder.glob("snapshots/*/config.json"))
    if main.is_file():
        commit = main.read_text(encoding="utf-8", errors="replace").strip()
        found += [p for p in found if p.parent.name == commit]
    return found[-1] if found else None


def _load(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        reason = f"has {size} bytes; a configuration has at most {MOST_BYTES}"
        raise ModelConfigError(str(path), reason)
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelConfigError(str(path), f"is not JSON: {_why(error)}") from error
    if not isinstance(keys, dict):
        raise ModelConfigError(str(path), f"holds a JSON {type(keys).__name__}, not an object")
    return keys


def _why(error: Exception) -> str:
    """What is wrong with a JSON text."""
    if isinstance(error, json.JSONDecodeError):
        if error.doc.startswith("\ufeff"):
            return "it begins with a byte-order mark; save it as UTF-8 without one"
        return f"{error!s:.120}"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"a whole number has more than {sys.get_int_max_str_digits():,} digits"


def _model(file: str, keys: Mapping[str, Any], name: str) -> ModelSpec:
    """The model, with what the file lacks and transformers knows."""
    taken: dict[str, Any] = {}
    while True:
        try:
            spec = _read(file, keys, name, taken)
        except ModelConfigError as error:
            value = None if error.missing in taken else _class_default(file, keys, error.missing)
            if value is None:
                raise
            taken[error.missing] = value
            continue
        note = ", ".join(f"{key}={value}" for key, value in taken.items())
        notes = (f"not in the file, so the default of transformers: {note}",) if note else ()
        return replace(spec, notes=(*spec.notes, *notes))


def _class_default(file: str, keys: Mapping[str, Any], key: str) -> Any:
    """What transformers' configuration class says of a key; None where it is not installed."""
    kind = _text_config(Config(file, keys)).text("model_type")
    if not key or not kind:
        return None
    try:
        from transformers import AutoConfig
    except ImportError:
        return None
    try:
        return AutoConfig.for_model(kind).to_dict().get(key)
    except (ValueError, KeyError):  # a type that this release of transformers does not know
        return None


def _read(file: str, keys: Mapping[str, Any], name: str, defaults: Mapping[str, Any]) -> ModelSpec:
    config = Config(file, keys)
    text = _text_config(config).over(defaults)
    quant = _quant(config, text)
    try:
        spec = _reader(config, text)(text)
        spec = replace(
            spec,
            name=name,
            extra=(*spec.extra, *towers.read(config, text)),
            quantisation=None if quant is None else quant_config.read(text, quant),
            notes=(*spec.notes, *_notes(quant)),
        )
    except ModelConfigError:
        raise
    except ServesimError as error:  # a width that no model can have
        raise ModelConfigError(file, error.message) from error
    _check_plausible(file, spec)
    return spec


def _check_plausible(file: str, spec: ModelSpec) -> None:
    """Refuse products of widths that no GPU could hold."""
    state = sum(kind.num_layers * kind.state_bytes for kind in spec.kv_layers("bf16"))
    for what, size, most in (
        ("parameters", spec.num_parameters, MOST_PARAMETERS),
        ("bytes of KV per token", spec.kv_bytes_per_token("bf16"), MOST_KV_BYTES),
        ("bytes of state per request", state, MOST_STATE_BYTES),
    ):
        if size > most:
            raise ModelConfigError(file, f"gives {size:.1e} {what}, more than any model has")


def _text_config(config: Config) -> Config:
    """The language model of a multimodal one; the configuration itself, else."""
    for key in _NESTED:
        if isinstance(config.keys.get(key), Mapping):
            inner = {k: v for k, v in config.keys[key].items() if v is not None}
            shared = {k: config.keys[k] for k in _SHARED_KEYS if k in config.keys}
            return config.within({**shared, **inner}, key)
    return config


def _reader(config: Config, text: Config) -> Reader:
    """The family's reader: by model type, inner before outer, then by architecture."""
    types, architectures = _table()
    for each in (text, config):
        kind = each.text("model_type")
        if kind in types:
            return types[kind]
    for each in (text, config):
        listed = each.list_of("architectures", str) if each.has("architectures") else []
        for architecture in listed:
            if architecture in architectures:
                return architectures[architecture]
    return generic.read


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, Reader], dict[str, Reader]]:
    """Readers by model type and by architecture."""
    types: dict[str, Reader] = {}
    architectures: dict[str, Reader] = {}
    for module in family_modules():
        types.update(dict.fromkeys(module.MODEL_TYPES, module.read))
        architectures.update(dict.fromkeys(getattr(module, "ARCHITECTURES", ()), module.read))
    return types, architectures


def family_modules() -> list[ModuleType]:
    """Every file of the folder of families."""
    names = (
        f"{families.__name__}.{found.name}" for found in pkgutil.iter_modules(families.__path__)
    )
    return [importlib.import_module(name) for name in names]


def _quant(config: Config, text: Config) -> Config | None:
    for each in (config, text):
        for key in ("quantization_config", "compression_config"):
            if each.has(key):
                return each.inner(key)
    return None


def _notes(quant: Config | None) -> list[str]:
    if quant is None:
        return []
    algorithm = quant.keys.get("kv_cache_quant_algo") or quant.keys.get("kv_cache_scheme")
    return ["the checkpoint is made for an fp8 KV cache"] if algorithm else []
