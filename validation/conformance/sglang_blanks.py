"""Blank modules in place of GPU packages, so that SGLang's scheduler can be imported on a CPU."""

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import MagicMock

# GPU packages that the scheduler's modules import and none of its decisions uses
_GPU_PACKAGES = {
    "compressed_tensors",
    "cutlass",
    "deep_ep",
    "deep_gemm",
    "flash_attn",
    "flashinfer",
    "humming",
    "kernels",
    "llguidance",
    "quack",
    "sgl_kernel",
    "tilelang",
    "torch_memory_saver",
    "torchvision",
    "tvm_ffi",
    "xgrammar",
}


def allow_missing_gpu_packages() -> None:
    """From now on a GPU package that is not installed is imported as a blank."""
    sys.meta_path.append(_BlankFinder())  # at the end: an installed package wins


class _BlankType(type):
    """A class that takes any arguments and has any attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _blank(name)

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return super().__call__()


class _Blank(ModuleType):
    """A module of which any name can be imported."""

    __path__ = []  # noqa: RUF012  so that it has submodules
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        value = _blank(name)
        setattr(self, name, value)
        return value


def _blank(name: str) -> Any:
    """A class or a function, by its name."""
    if name.startswith("__"):
        raise AttributeError(name)
    if not name[0].isupper():
        return MagicMock(side_effect=_decorated)
    schema = classmethod(
        lambda *_: importlib.import_module("pydantic_core").core_schema.any_schema()
    )
    return _BlankType(name, (), {"__get_pydantic_core_schema__": schema})


def _decorated(*arguments: Any, **_: Any) -> Any:
    """A blank decorator, bare or with arguments, gives back what it decorates."""
    if len(arguments) == 1 and isinstance(arguments[0], type | FunctionType):
        return arguments[0]
    return MagicMock(side_effect=_decorated)


class _BlankFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Blank modules in place of GPU packages that are not installed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.partition(".")[0] not in _GPU_PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""
