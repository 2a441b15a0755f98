"""Generated code under other names: the same functions, with other globals.

What Inductor generates is a module whose ``call`` is a function, or a method of a class in it (``Runner.call``, with
the functions of its partitions in a list).
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

PIECE, OPERATOR = re.compile(r"piece_\d+"), re.compile(r"op_\d+")
"""The names that a program's caller has for its compiled pieces, and for the operators between them."""


def scope_of(call: Any) -> Mapping[str, Any] | None:
    """The globals of generated code, or None where ``call`` is no Python function or method."""
    function = call.__func__ if isinstance(call, types.MethodType) else call
    return function.__globals__ if isinstance(function, types.FunctionType) else None


def rebound(call: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any]:
    """``call`` with ``names`` in the place of globals that it, and what its module defines, read."""
    scope = scope_of(call)
    if scope is None:
        return call
    return _Rebinding(scope, names).of(call)


class _Rebinding:
    def __init__(self, scope: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        self._old = scope
        self._new: dict[str, Any] = {}
        self._done: dict[int, Any] = {}
        self._new |= {name: self.of(value) for name, value in scope.items()} | dict(names)

    def of(self, value: Any) -> Any:
        if isinstance(value, types.FunctionType):
            return self._function(value) if value.__globals__ is self._old else value
        if isinstance(value, types.MethodType) and scope_of(value) is self._old:
            owner = self._instance(value.__self__)
            return types.MethodType(self.of(value.__func__), owner)
        if isinstance(value, list):
            return [self.of(item) for item in value]
        return value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        known = self._done.get(id(function))
        if known is None:
            known = types.FunctionType(
                function.__code__, self._new, function.__name__, function.__defaults__, function.__closure__
            )
            self._done[id(function)] = known
        found: types.FunctionType = known
        return found

    def _instance(self, instance: Any) -> Any:
        """The same state; its methods are looked up on a class of rebound functions."""
        known = self._done.get(id(instance))
        if known is None:
            cls = type(instance)
            methods = {
                name: self.of(value) for name, value in vars(cls).items() if isinstance(value, types.FunctionType)
            }
            known = object.__new__(type(cls.__name__, (), methods))
            for name, value in vars(instance).items():
                setattr(known, name, self.of(value))
            self._done[id(instance)] = known
        return known


def operator_name(operator: Any) -> str:
    if isinstance(operator, torch._ops.OpOverload):
        return str(operator._schema.name)
    return str(getattr(operator, "_qualified_op_name", None) or getattr(operator, "__name__", operator))
