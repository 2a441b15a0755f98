"""Tensors within arguments and results: taken out, and put back into containers of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .backend import CannotCapture

Change = Callable[[torch.Tensor], Any]

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def map_tensors(value: Any, change: Change) -> Any:
    """The value with each tensor changed, its containers made anew; always in the order of `tensors_of`.

    Raises CannotCapture: a class that may hold tensors where they cannot be found, or a tensor of another class.
    """
    if isinstance(value, torch.Tensor):
        return change(_plain(value))
    if isinstance(value, tuple) and type(value) is not torch.Size:
        parts = [map_tensors(part, change) for part in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if type(value) is list:
        return [map_tensors(part, change) for part in value]
    if isinstance(value, dict):
        made: dict[Any, Any] = {} if type(value) is dict else copy.copy(value)
        for key, part in value.items():
            made[key] = map_tensors(part, change)
        return made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        record: Any = copy.copy(value)
        for name, part in _fields(value):
            object.__setattr__(record, name, map_tensors(part, change))
        return record
    if type(value) in _PLAIN or isinstance(value, enum.Enum):
        return value
    raise CannotCapture(f"a {type(value).__qualname__}, which may hold tensors where they are not found")


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in order. Raises CannotCapture as `map_tensors` does."""
    found: list[torch.Tensor] = []
    outline(value, found)
    return found


def outline(value: Any, found: list[torch.Tensor]) -> Any:
    """All of a value but its tensors, to be compared by ``==``; the tensors are put at the end of ``found``."""
    if isinstance(value, torch.Tensor):
        found.append(_plain(value))
        return torch.Tensor
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        return type(value), [outline(part, found) for part in value]
    if isinstance(value, dict):
        return type(value), [(key, outline(part, found)) for key, part in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [(name, outline(part, found)) for name, part in _fields(value)]
    if type(value) in _PLAIN or isinstance(value, enum.Enum):
        return type(value), value
    raise CannotCapture(f"a {type(value).__qualname__}, which may hold tensors where they are not found")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(where, tensor or constant) in order, for messages."""
    parts: Iterator[tuple[str, Any]]
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        parts = ((f"{path}[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, Mapping):
        parts = ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((f"{path}.{name}", part) for name, part in _fields(value))
    else:
        yield path, value
        return
    for where, part in parts:
        yield from leaves(part, where)


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) not in _PLAIN_TENSORS:
        raise CannotCapture(f"a tensor of the class {type(tensor).__qualname__}")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CannotCapture("a sparse or quantized tensor")
    return tensor
