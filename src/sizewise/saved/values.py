"""Python values as JSON and back, exactly: no pickle, nothing but the classes named here.

A plain JSON value stands for itself; everything else is a list whose first item says what it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import torch

from ..traced.outputs import find_class


class NotWritable(Exception):
    """Internal: a value that is no plain data; the message says which. The program is then not saved."""


class Unreadable(Exception):
    """Internal: what was written is not what is read; the manifest is damaged or of another version."""


def encode(value: Any) -> Any:
    """``value`` as JSON.

    Raises:
        NotWritable: it is of no class that can be read back.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    for cls, name, write, _ in _PLAIN:
        if kind is cls:
            return [name, write(value)]
    if isinstance(value, enum.Enum):
        return ["enum", _class_name(kind), value.name]
    if isinstance(value, type):
        return ["class", _class_name(value)]
    if kind in (tuple, list):
        return [kind.__name__, [encode(item) for item in value]]
    if kind is dict:
        return ["dict", [[encode(key), encode(item)] for key, item in value.items()]]
    raise NotWritable(f"a {kind.__module__}.{kind.__qualname__}")


def decode(data: Any) -> Any:
    """The value that `encode` wrote.

    Raises:
        Unreadable, TypeError, AttributeError, ImportError, ValueError: ``data`` is not what `encode` writes, or names
            a class that is not there.
    """
    if not isinstance(data, list):
        return data
    name, *rest = data
    for _, known, _, read in _PLAIN:
        if name == known:
            return read(*rest)
    if name == "enum":
        return getattr(_enum(rest[0]), rest[1])
    if name == "class":
        return find_class(rest[0])
    if name in ("tuple", "list"):
        items = [decode(item) for item in rest[0]]
        return tuple(items) if name == "tuple" else items
    if name == "dict":
        return {decode(key): decode(item) for key, item in rest[0]}
    raise Unreadable(f"{name!r} is no kind of value")


def _class_name(cls: type) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = find_class(name)
    except (ImportError, AttributeError):
        found = None
    if found is not cls:
        raise NotWritable(f"the class {name}, which cannot be imported by that name")
    return name


def _enum(name: str) -> type[enum.Enum]:
    cls = find_class(name)
    if not issubclass(cls, enum.Enum):
        raise Unreadable(f"{name} is no Enum")
    return cls


def _torch_constant(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = getattr(torch, text.removeprefix("torch."))
        if not isinstance(value, kind):
            raise Unreadable(f"{text} is no {kind.__name__}")
        return value

    return read


def _encoded_slice(value: slice) -> Any:
    return [encode(value.start), encode(value.stop), encode(value.step)]


_PLAIN: tuple[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (float, "float", float.hex, float.fromhex),
    (complex, "complex", lambda v: [v.real.hex(), v.imag.hex()], lambda v: complex(*map(float.fromhex, v))),
    (bytes, "bytes", bytes.hex, bytes.fromhex),
    (torch.dtype, "dtype", str, _torch_constant(torch.dtype)),
    (torch.layout, "layout", str, _torch_constant(torch.layout)),
    (torch.memory_format, "memory_format", str, _torch_constant(torch.memory_format)),
    (torch.device, "device", str, torch.device),
    (torch.Size, "size", list, torch.Size),
    (slice, "slice", _encoded_slice, lambda v: slice(*map(decode, v))),
    (range, "range", lambda v: [v.start, v.stop, v.step], lambda v: range(*v)),
)
