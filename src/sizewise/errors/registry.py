"""Every concrete error by its code. Built from the modules of this package, on request."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from . import build, bundle, cache, call, capture, command, config, state, trace
from .base import SizewiseError

MODULES: tuple[ModuleType, ...] = (config, trace, build, call, state, capture, cache, bundle, command)


def errors_by_code() -> dict[str, type[SizewiseError]]:
    """Code -> class, in the order of the codes."""
    found = {
        member.code: member
        for module in MODULES
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, SizewiseError) and member.code
    }
    return dict(sorted(found.items()))


def unused_codes() -> dict[str, str]:
    """Codes that no error has -> ``retired`` (one had it) or ``reserved`` (none has it yet)."""
    lines = (Path(__file__).parent / "codes.lock").read_text(encoding="utf-8").splitlines()
    given = (line.split() for line in lines if line and not line.startswith("#"))
    return {code: name for code, name in given if name in ("retired", "reserved")}
