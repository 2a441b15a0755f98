"""What a warm-up gives: programs that serve, and what is known about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from .calls import Call, Signature
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


@dataclass(frozen=True)
class Target:
    """What is compiled: a module and one of its methods (``__call__`` is forward with its hooks).

    ``original`` runs that method as the user wrote it, also after it was replaced in place;
    ``prepare_twin`` undoes such a replacement in the twin that is traced.
    """

    module: nn.Module
    owner: str
    signature: Signature
    method: str
    original: Callable[..., Any]
    device_type: str
    prepare_twin: Callable[[nn.Module], None] | None = None


@dataclass
class Lookup:
    """Where the programs of one call came from: their key in the cache, whether they were there, and why not."""

    key: str
    hit: bool
    why: str


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

    decode: Mapping[str, int] | None = None
    """The sizes by which decode batches are known, where they were declared."""
    examples: list[Call] = field(default_factory=list)
    """The calls they were built for, with their values; none where they come from a bundle."""
    lookups: list[Lookup] = field(default_factory=list)
    """One for each call, where there is a cache."""

    def config(self) -> CompilationConfig:
        if self.resolved is not None:
            return self.resolved.config
        from .config.compilation import CompilationConfig

        return CompilationConfig.from_json(json.dumps(self.saved_config or {}))
