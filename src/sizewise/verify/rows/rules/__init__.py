"""What each operator does to rows: a list of those that are known; every other one is refused."""

from __future__ import annotations

from typing import Any

from .. import operators
from . import attention, elementwise, indexing, joins, layers, products, reductions, views
from .base import Rule

__all__ = ["RULES", "Rule", "is_view", "rule_for"]

_TABLES = (elementwise, views, joins, products, reductions, indexing, layers, attention)
RULES: dict[str, Rule] = {name: rule for table in _TABLES for name, rule in table.RULES.items()}

_NOT_THESE = frozenset({"aten::view.dtype", "aten::where", "aten::equal"})
"""Overloads that do something else than their namesakes, or than torch says."""


def rule_for(func: Any) -> Rule | None:
    """The rule of an operator; None for one that is not known."""
    if not operators.is_operator(func) or operators.full_name(func) in _NOT_THESE:
        return None
    if operators.is_pointwise(func):
        return elementwise.POINTWISE
    return RULES.get(operators.base_name(func))


def is_view(func: Any, rule: Rule | None) -> bool:
    """Whether what the operator gives lies in its argument's memory, in places that the rule speaks of."""
    return rule is not None and (rule.view or (rule is elementwise.SAME and operators.declares_alias(func)))
