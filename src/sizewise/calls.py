"""A call's arguments as leaves: which tensors, which Python values, in which containers.

One canonical form serves warm-up, tracing and the entry check: `x=1` and a positional 1 are the same
call, and an omitted argument equals its default.
"""

from __future__ import annotations

import copy
import difflib
import enum
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .errors import call as call_errors
from .errors import trace as trace_errors

CONSTANT_TYPES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    slice,
    range,
)
"""Python values that can be compared by type and value, and so can be part of a program's key."""


def not_plain(tensor: torch.Tensor) -> tuple[str, str] | None:
    """What a tensor is and how to make a plain one of it; None where compiled code can read it."""
    if tensor.is_nested:
        return "a nested tensor", "pad it: torch.nested.to_padded_tensor(x, 0.0), with a mask for what is padding"
    if tensor.is_quantized:
        return "a quantized tensor", "pass x.dequantize()"
    if tensor.layout != torch.strided:
        return f"a tensor with layout {tensor.layout}", "pass x.to_dense()"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        cls = type(tensor)
        return f"a {cls.__module__}.{cls.__qualname__}", "pass x.as_subclass(torch.Tensor), if its values are those"
    return None


@dataclass(frozen=True)
class Leaf:
    """One tensor or Python value of a call.

    ``path`` names it to the user (``input_ids``, ``batch['mask']``); ``expr`` reads it inside a
    function that has the forward's signature.
    """

    path: str
    expr: str
    value: Any

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, torch.Tensor)


@dataclass(frozen=True)
class Shell:
    """A container whose type and keys have to recur: ``keys`` is a length for tuples and lists."""

    path: str
    expr: str
    kind: type
    keys: Any


@dataclass(frozen=True)
class Passed:
    """One argument as it is handed on: ``keyword`` is None for a positional one."""

    keyword: str | None
    path: str
    value: Any


@dataclass(frozen=True)
class Call:
    """One call, flattened. ``passed`` is its minimal form: arguments that repeat a default are left out."""

    passed: tuple[Passed, ...]
    leaves: tuple[Leaf, ...]
    shells: tuple[Shell, ...]

    @property
    def args(self) -> tuple[Any, ...]:
        return tuple(argument.value for argument in self.passed if argument.keyword is None)

    @property
    def kwargs(self) -> dict[str, Any]:
        return {argument.keyword: argument.value for argument in self.passed if argument.keyword is not None}

    def with_values(self, values: dict[str, Any]) -> Call:
        """The same call with other values at the leaves named in ``values``; containers are rebuilt."""
        passed = tuple(
            Passed(argument.keyword, argument.path, _rebuilt(argument.path, argument.value, values))
            for argument in self.passed
        )
        leaves = tuple(Leaf(leaf.path, leaf.expr, values.get(leaf.path, leaf.value)) for leaf in self.leaves)
        return Call(passed, leaves, self.shells)

    def tensors(self) -> Iterator[Leaf]:
        return (leaf for leaf in self.leaves if leaf.is_tensor)

    def constants(self) -> Iterator[Leaf]:
        return (leaf for leaf in self.leaves if not leaf.is_tensor)

    def tensor_values(self) -> dict[str, torch.Tensor]:
        """The tensors by path."""
        return {leaf.path: leaf.value for leaf in self.tensors()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {leaf.path: tuple(leaf.value.shape) for leaf in self.tensors()}

    def key(self) -> tuple[Any, ...]:
        """What has to recur for the same program to serve: everything but the sizes of tensors."""
        tensors = tuple(leaf.path for leaf in self.tensors())
        constants = tuple((leaf.path, type(leaf.value), repr(leaf.value)) for leaf in self.constants())
        shells = tuple((shell.path, shell.kind, repr(shell.keys)) for shell in self.shells)
        return tensors, constants, shells


class Signature:
    """The forward method's signature, without ``self``."""

    def __init__(self, forward: Callable[..., Any], owner: str) -> None:
        self.signature = inspect.signature(forward)
        self.owner = owner
        kinds = inspect.Parameter
        parameters = self.signature.parameters.values()
        self.var_positional = next((p.name for p in parameters if p.kind is kinds.VAR_POSITIONAL), None)
        self.var_keyword = next((p.name for p in parameters if p.kind is kinds.VAR_KEYWORD), None)

    def names(self) -> list[str]:
        """The arguments that can be named; ``*args`` and ``**kwargs`` are not among them."""
        return [name for name in self.signature.parameters if name not in (self.var_positional, self.var_keyword)]

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Flatten one call.

        Raises:
            BadCall (SW408): the arguments do not fit the signature.
            InputClass (SW213): an argument is neither a tensor nor a comparable value.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise self._bad_call(problem, kwargs) from None
        passed = self._minimal(bound)
        bound.apply_defaults()
        leaves: list[Leaf] = []
        shells: list[Shell] = []
        for name, value in bound.arguments.items():
            if name == self.var_keyword:
                # In the caller's order, which the forward sees as well.
                for key in value:
                    _flatten(self._keyword_path(key), f"{name}[{key!r}]", value[key], leaves, shells)
                shells.append(Shell(f"**{name}", name, dict, tuple(value)))
            elif name == self.var_positional:
                for index, item in enumerate(value):
                    _flatten(f"{name}[{index}]", f"{name}[{index}]", item, leaves, shells)
                shells.append(Shell(f"*{name}", name, tuple, len(value)))
            else:
                _flatten(name, name, value, leaves, shells)
        return Call(passed, tuple(leaves), tuple(shells))

    def _bad_call(self, problem: TypeError, kwargs: dict[str, Any]) -> call_errors.BadCall:
        """SW408; a keyword that the forward does not have comes before an argument that is missing for that reason."""
        words, suggestion = str(problem), ""
        names = self.names()
        unknown = [name for name in kwargs if name not in names]
        if unknown and not self.var_keyword:
            words = f"it has no argument named {' or '.join(map(repr, unknown))}"
            free = [name for name in names if name not in kwargs]
            near = difflib.get_close_matches(unknown[0], free, n=1) or (free if len(free) == 1 else [])
            suggestion = f"its arguments are {', '.join(names) or 'none'}; "
            if near:
                suggestion = f"write {near[0]!r} for {unknown[0]!r}; "
        return call_errors.BadCall(owner=self.owner, problem=words, suggestion=suggestion, signature=self.signature)

    def _minimal(self, bound: inspect.BoundArguments) -> tuple[Passed, ...]:
        """The call without arguments that repeat their default, as keywords where the signature allows."""
        kinds = inspect.Parameter
        positional: list[Passed] = []
        keywords: list[Passed] = []
        has_varargs = bool(self.var_positional and bound.arguments.get(self.var_positional))
        for name, parameter in self.signature.parameters.items():
            before_varargs = has_varargs and parameter.kind is kinds.POSITIONAL_OR_KEYWORD
            if name not in bound.arguments:
                if isinstance(parameter.default, torch.Tensor) and parameter.kind is not kinds.POSITIONAL_ONLY:
                    # A tensor is an input, also where it is a default.
                    keywords.append(Passed(name, name, parameter.default))
                    continue
                # Only defaults can be missing; before *args they hold a position.
                if before_varargs:
                    positional.append(Passed(None, name, parameter.default))
                continue
            value = bound.arguments[name]
            if parameter.kind is kinds.VAR_POSITIONAL:
                positional.extend(Passed(None, f"{name}[{i}]", item) for i, item in enumerate(value))
            elif parameter.kind is kinds.VAR_KEYWORD:
                keywords.extend(Passed(key, self._keyword_path(key), item) for key, item in value.items())
            elif parameter.kind is kinds.POSITIONAL_ONLY or before_varargs:
                positional.append(Passed(None, name, value))
            elif value is not parameter.default or isinstance(value, torch.Tensor):
                keywords.append(Passed(name, name, value))
        return (*positional, *keywords)

    def _keyword_path(self, key: str) -> str:
        """The path of a keyword that ``**kwargs`` takes; a positional-only argument may have the same name."""
        return f"{self.var_keyword}[{key!r}]" if key in self.signature.parameters else key

    def declaration(self) -> tuple[str, dict[str, Any]]:
        """The signature as source text for a generated function, and the defaults it names.

        Defaults are passed by name (``__default_x``) because their repr need not be source.
        """
        defaults: dict[str, Any] = {}
        parts: list[str] = []
        kinds = inspect.Parameter
        seen_star = False
        parameters = list(self.signature.parameters.values())
        for index, parameter in enumerate(parameters):
            if parameter.kind is kinds.KEYWORD_ONLY and not seen_star:
                parts.append("*")
                seen_star = True
            prefix = "*" if parameter.kind is kinds.VAR_POSITIONAL else ""
            prefix = "**" if parameter.kind is kinds.VAR_KEYWORD else prefix
            seen_star = seen_star or prefix == "*"
            text = prefix + parameter.name
            if parameter.default is not kinds.empty:
                defaults[f"__default_{parameter.name}"] = parameter.default
                text += f"=__default_{parameter.name}"
            parts.append(text)
            following = parameters[index + 1].kind if index + 1 < len(parameters) else None
            if parameter.kind is kinds.POSITIONAL_ONLY and following is not kinds.POSITIONAL_ONLY:
                parts.append("/")
        return ", ".join(parts), defaults


def _is_constant_class(value: Any) -> bool:
    """torch's own value classes (dtype, device, layout, Size), which cannot be told by ``type() in``."""
    return isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size))


def _flatten(path: str, expr: str, value: Any, leaves: list[Leaf], shells: list[Shell]) -> None:
    # Of a subclass of int or str, neither type nor repr says what it computes with.
    if isinstance(value, (torch.Tensor, enum.Enum)) or type(value) in CONSTANT_TYPES or _is_constant_class(value):
        leaves.append(Leaf(path, expr, value))
    elif type(value) in (tuple, list):
        shells.append(Shell(path, expr, type(value), len(value)))
        for index, item in enumerate(value):
            _flatten(f"{path}[{index}]", f"{expr}[{index}]", item, leaves, shells)
    elif isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        shells.append(Shell(path, expr, type(value), tuple(value)))
        for key, item in value.items():
            _flatten(f"{path}[{key!r}]", f"{expr}[{key!r}]", item, leaves, shells)
    else:
        raise trace_errors.InputClass(path=path, type_name=f"a {type(value).__module__}.{type(value).__qualname__}")


def _rebuilt(path: str, value: Any, values: dict[str, Any]) -> Any:
    if path in values:
        return values[path]
    if type(value) in (tuple, list):
        return type(value)(_rebuilt(f"{path}[{i}]", item, values) for i, item in enumerate(value))
    if isinstance(value, dict):
        # copy.copy keeps the class and the order; only the values change.
        rebuilt = copy.copy(value)
        for key, item in value.items():
            rebuilt[key] = _rebuilt(f"{path}[{key!r}]", item, values)
        return rebuilt
    return value
