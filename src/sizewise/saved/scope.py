"""What a caller's source names (operators, classes, constants) as JSON and back."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch

from ..ops import REGISTRY, attention_overload
from ..traced.state import HELD
from .values import NotWritable, Unreadable, decode, encode


class NotThere(Exception):
    """Internal: something a saved program needs is not in this process; the message says what."""


def write_scope(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Raises NotWritable: a name stands for something that cannot be found again by a name."""
    return {name: _write(name, value) for name, value in scope.items()}


def _write(name: str, value: Any) -> list[Any]:
    if name.startswith(HELD):
        return ["held", name.removeprefix(HELD)]
    if isinstance(value, torch._ops.OpOverload):
        return ["operator", value._schema.name, value._overloadname]
    if isinstance(value, torch._ops.OpOverloadPacket):
        return ["operator", value._qualified_op_name, ""]
    if isinstance(value, torch.Tensor):
        raise NotWritable("a tensor that the forward makes of Python values and hands to an operator between pieces")
    if callable(value) and not isinstance(value, type):
        return ["function", *_function_name(value)]
    try:
        return ["value", encode(value)]
    except NotWritable as problem:
        raise NotWritable(f"{name}, {problem}") from None


def _function_name(value: Any) -> tuple[str, str]:
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
    for home in dict.fromkeys((module, "torch", "torch._C._nn", "operator")):
        if _find(home, name) is value:
            return home, name
    raise NotWritable(f"the function {module}.{name}, which cannot be imported by that name")


def _find(module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found


def read_scope(data: Mapping[str, Any], held: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The names with what they stand for; ``held`` are the persistent arguments.

    Raises:
        NotThere: an operator is not registered, or a function or class is gone.
    """
    return {name: _read(held or {}, *written) for name, written in data.items()}


def _read(held: Mapping[str, Any], kind: str, *rest: Any) -> Any:
    if kind == "held":
        if rest[0] not in held:
            raise NotThere(f"there is no persistent argument {rest[0]}")
        return held[rest[0]]
    if kind == "operator":
        return find_operator(*rest)
    if kind == "function":
        found = _find(*rest)
        if found is None:
            raise NotThere(f"the function {'.'.join(rest)} is gone")
        return found
    if kind != "value":
        raise Unreadable(f"{kind!r} is no kind of name")
    try:
        return decode(rest[0])
    except (ImportError, AttributeError) as problem:
        raise NotThere(f"a class is gone: {problem}") from None


def find_operator(name: str, overload: str) -> Any:
    """The operator ``namespace::name``, or one of its overloads. Raises NotThere."""
    namespace, _, short = name.partition("::")
    if namespace == REGISTRY.namespace:
        attention_overload()  # Sizewise's own are defined on first use
    packet = getattr(getattr(torch.ops, namespace), short, None)
    if packet is None:
        raise NotThere(f"the operator {name} is not registered: import the module that defines it first")
    if not overload:
        return packet
    found = getattr(packet, overload, None)
    if found is None:
        raise NotThere(f"the operator {name} has no overload {overload!r} here")
    return found
