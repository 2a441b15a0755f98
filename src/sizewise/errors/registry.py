"""Every concrete error by its code. Built from the modules of this package, on request."""

from __future__ import annotations

from types import ModuleType

from . import build, call, capture, command, config, state, trace
from .base import SizewiseError

MODULES: tuple[ModuleType, ...] = (config, trace, build, call, state, capture, command)


def errors_by_code() -> dict[str, type[SizewiseError]]:
    """Code -> class, in the order of the codes."""
    found = {
        member.code: member
        for module in MODULES
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, SizewiseError) and member.code
    }
    return dict(sorted(found.items()))
