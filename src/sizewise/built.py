"""What a warm-up gives: programs that serve, and what is known about them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dims import DimSpec
from .dispatch import Entry

if TYPE_CHECKING:
    from .config.compilation import CompilationConfig
    from .config.resolve import Resolved


@dataclass(frozen=True)
class Outcome:
    """One size, and what came of it: ``equal``, or ``not checked`` for a reason; anything else is an error."""

    sizes: Mapping[str, int]
    verdict: str
    why: str = ""


@dataclass
class Built:
    """The programs of one warm-up."""

    entries: list[Entry]
    spec: DimSpec
    resolved: Resolved | None
    """None where the programs were loaded."""
    outcomes: list[Outcome] = field(default_factory=list)
    state: tuple[Any, ...] = ()
    saved_config: dict[str, Any] | None = None
    """The config that loaded programs were built with, as JSON."""

    def config(self) -> CompilationConfig:
        if self.resolved is not None:
            return self.resolved.config
        from .config.compilation import CompilationConfig

        return CompilationConfig.from_json(json.dumps(self.saved_config or {}))
