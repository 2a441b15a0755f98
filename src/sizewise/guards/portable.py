"""Values in words that mean the same in another process: for the question whether a module is what another was."""

from __future__ import annotations

import enum
import types
from typing import Any

import torch
from torch import nn

from ..calls import CONSTANT_TYPES
from ..traced.code import digest

_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)


def portable(value: Any) -> str:
    """``value`` in words. Of an object only its class: what was read of it is among the values by itself."""
    if isinstance(value, enum.Enum):
        return f"{_name_of(type(value))}.{value.name} {_member(value.value)}"
    if isinstance(value, CONSTANT_TYPES):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, nn.Module):
        return f"module {_name_of(type(value))}"
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, type):
        return f"class {_name_of(value)}"
    if isinstance(value, types.FunctionType):
        return _function(value)
    if isinstance(value, (classmethod, staticmethod)):
        return f"{type(value).__name__} {portable(value.__func__)}"
    if isinstance(value, types.MethodType):
        return f"method {portable(value.__func__)}"
    if isinstance(value, types.CodeType):
        return f"code {digest(value)}"
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__}"
    if isinstance(value, types.BuiltinFunctionType):
        home = value.__module__ or getattr(type(value.__self__), "__module__", "")
        return f"builtin {home}.{value.__qualname__}"
    if isinstance(value, _DESCRIPTORS):
        return f"method {_name_of(value.__objclass__)}.{value.__name__}"
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"builtin {value}"
    if isinstance(value, tuple):
        return f"{type(value).__name__} ({', '.join(map(portable, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__} {{{', '.join(sorted(map(portable, value)))}}}"
    size = f" of {len(value)}" if isinstance(value, (list, dict)) else ""
    return f"a {_name_of(type(value))}{size}"


def _member(value: Any) -> str:
    """An enum's value; the text of an object may hold an address."""
    return portable(value) if isinstance(value, (tuple, *CONSTANT_TYPES)) else portable(type(value))


def _function(value: types.FunctionType) -> str:
    name = f"function {value.__module__}.{value.__qualname__}"
    if not is_library(value.__module__):
        return f"{name} {digest(value.__code__)}"
    if "<locals>" not in value.__qualname__:
        return name
    # Many functions of a library may have been made by one and have its name.
    cells = [_content(cell) for cell in value.__closure__ or ()]
    return f"{name} {digest(value.__code__)} ({', '.join(cells)})"


def _content(cell: types.CellType) -> str:
    try:
        value = cell.cell_contents
    except ValueError:
        return "empty"
    # A function may be in its own closure.
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, types.FunctionType) else portable(value)


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def is_library(module: str | None) -> bool:
    """Whether nobody is expected to replace what is in this Python module while it serves."""
    return (module or "").partition(".")[0] in ("torch", "transformers", "os")
