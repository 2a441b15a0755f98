"""Operators Sizewise defines."""

from .attention import ATTENTION, attention_overload
from .registry import REGISTRY, Operator, OperatorRegistry

__all__ = ["ATTENTION", "REGISTRY", "Operator", "OperatorRegistry", "attention_overload"]
