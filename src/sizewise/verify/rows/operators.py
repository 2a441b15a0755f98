"""What torch says of an operator: its name, its arguments, what it writes, whether it draws random numbers.

Private API: ``torch._ops.OpOverload`` with ``_schema`` and ``_overloadname``. Checked on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def is_operator(func: Any) -> bool:
    """Whether it has a schema; higher-order operators have none."""
    return isinstance(func, torch._ops.OpOverload)


def full_name(func: Any) -> str:
    """``aten::mean.dim``; an overload called default is left out."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return str(func)
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def base_name(func: Any) -> str:
    """The name without aten, without the overload and, for an in-place form, without its underscore."""
    name = str(func._schema.name).removeprefix("aten::")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def arguments(func: Any) -> Iterator[tuple[str, Any]]:
    """(name, default) of every argument, in order."""
    for argument in func._schema.arguments:
        default = argument.default_value
        yield argument.name, tuple(default) if isinstance(default, list) else default


def written(func: Any) -> Iterator[tuple[int, str]]:
    """(place, name) of the arguments that it writes to."""
    for index, argument in enumerate(getattr(getattr(func, "_schema", None), "arguments", ())):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield index, argument.name


def declares_alias(func: Any) -> bool:
    """Whether a result is said to lie in an argument's memory."""
    return any(result.alias_info is not None for result in func._schema.returns)


def can_be_random(func: Any) -> bool:
    """Whether it draws random numbers, at least with some arguments."""
    has_generator = any(name == "generator" for name, _ in arguments(func))
    return torch.Tag.nondeterministic_seeded in func.tags or has_generator


def changes_layout(func: Any) -> bool:
    """Whether it changes its argument's shape and strides, and no values."""
    return torch.Tag.inplace_view in func.tags


def is_pointwise(func: Any) -> bool:
    """Whether torch itself says that each value is computed from the values in the same place."""
    if func.namespace != "aten":
        return False
    if torch.Tag.pointwise in func.tags:
        return True
    # The in-place forms of some do not say so themselves.
    packet = getattr(torch.ops.aten, base_name(func), None)
    overload = func._overloadname
    if packet is None or overload not in packet.overloads() or overload.endswith("out"):
        return False
    return torch.Tag.pointwise in getattr(packet, overload).tags
