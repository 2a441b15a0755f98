"""A structural twin: the same tensors in copies of the modules around them.

Tracing may have to change a setting (which attention a transformers model uses) or trips lazy
set-up code (hooks a model installs at its first forward). Both happen on the twin; the user's
module and its config are never touched.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

from torch import nn

from ..traced.registries import REGISTRIES


def twin_of(module: nn.Module, adapt: Callable[[dict[int, Any]], None] | None = None) -> nn.Module:
    """A twin of ``module`` with the same parameters and buffers.

    ``adapt`` gets the memo (id of an original object -> its copy) before attributes are copied and may
    add replacements of its own, for example an adapted config.
    """
    memo: dict[int, Any] = {}
    originals = list(module.modules())
    for original in originals:
        clone = object.__new__(type(original))
        object.__setattr__(clone, "__dict__", {})
        memo[id(original)] = clone
    if adapt is not None:
        adapt(memo)
    for original in originals:
        state = memo[id(original)].__dict__
        for name, value in vars(original).items():
            state[name] = copy.copy(value) if name in REGISTRIES else _replace(value, memo)
        state["_modules"] = {key: memo.get(id(child), child) for key, child in original._modules.items()}
    return memo[id(module)]


def _replace(value: Any, memo: dict[int, Any]) -> Any:
    """``value`` with every reference to a copied object replaced; plain containers are rebuilt."""
    if id(value) in memo:
        return memo[id(value)]
    if type(value) in (list, tuple):
        items = [_replace(item, memo) for item in value]
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return type(value)(items) if changed else value
    if type(value) is dict:
        entries = {key: _replace(item, memo) for key, item in value.items()}
        changed = any(entries[key] is not value[key] for key in value)
        return entries if changed else value
    if isinstance(value, types.MethodType) and id(value.__self__) in memo:
        return types.MethodType(value.__func__, memo[id(value.__self__)])
    return value
