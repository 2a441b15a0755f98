"""What each operator does to rows: a list of those that are known; every other one is refused."""

from __future__ import annotations

from typing import Any

import torch

from . import attention, elementwise, indexing, joins, layers, products, reductions, views
from .base import Rule

__all__ = ["Rule", "base_name", "is_view", "rule_for"]

_TABLES = (elementwise, views, joins, products, reductions, indexing, layers, attention)
RULES: dict[str, Rule] = {name: rule for table in _TABLES for name, rule in table.RULES.items()}

_NOT_THESE = frozenset({"aten::view.dtype", "aten::where", "aten::equal"})
"""Overloads that do something else than their namesakes."""


def base_name(func: Any) -> str:
    """The operator's name without overload and, for an in-place form, without its underscore."""
    name = str(func._schema.name).removeprefix("aten::")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def rule_for(func: Any) -> Rule | None:
    """The rule of an operator; None for one that is not known."""
    if not isinstance(func, torch._ops.OpOverload):
        return None
    if f"{func._schema.name}.{func._schema.overload_name}".removesuffix(".") in _NOT_THESE:
        return None
    if func.namespace == "aten" and _is_pointwise(func):
        return elementwise.POINTWISE
    return RULES.get(base_name(func))


def is_view(func: Any, rule: Rule | None) -> bool:
    """Whether what the operator gives lies in its argument's memory, in places that the rule speaks of."""
    declared = any(result.alias_info is not None for result in func._schema.returns)
    return rule is not None and (rule.view or (declared and rule is elementwise.SAME))


def _is_pointwise(func: Any) -> bool:
    if torch.Tag.pointwise in func.tags:
        return True
    # The in-place forms of some do not say so themselves.
    packet = getattr(torch.ops.aten, base_name(func), None)
    overload = func._overloadname
    if packet is None or overload not in packet.overloads() or overload.endswith("out"):
        return False
    return torch.Tag.pointwise in getattr(packet, overload).tags
