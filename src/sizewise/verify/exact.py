"""Eager's result in float64, where a comparison asks how far eager itself is off."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ..calls import Call


class ExactReference:
    """Runs a copy of a module in float64. The copy is made on first use and kept: it doubles the memory."""

    def __init__(self, module: nn.Module | None, method: str = "__call__") -> None:
        self._module = module
        self._method = method
        self._wide: nn.Module | None = None

    def __call__(self, call: Call) -> Any:
        """The exact result, or None where the module does not run in float64: the stricter rule then stays."""
        if self._module is None:
            return None
        values = {
            leaf.path: leaf.value.double() if leaf.value.is_floating_point() else leaf.value.clone()
            for leaf in call.tensors()
        }
        wide = call.with_values(values)
        try:
            if self._wide is None:
                self._wide = copy.deepcopy(self._module).double()
            with torch.no_grad():
                return getattr(self._wide, self._method)(*wide.args, **wide.kwargs)
        except Exception:
            return None
