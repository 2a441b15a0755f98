"""A module and the persistent arguments of its calls, as one module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

HELD = "held_"
"""How a persistent argument's name begins in the source of a program whose result has it as it is."""


class WithState(nn.Module):
    """``module`` with ``persistent`` arguments in it; the forward that a subclass has takes the others."""

    def __init__(self, module: nn.Module, persistent: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """``defaults`` are those of the forward: what is equal to one is not handed on."""
        super().__init__()
        self.defaults = dict(defaults)
        self.module = module
        self.persistent = dict(persistent)
        self.training = module.training


def held_objects(module: nn.Module) -> dict[str, Any]:
    """The persistent arguments that ``module`` holds, by name: a forward may return them as they are."""
    return module.persistent if isinstance(module, WithState) else {}
