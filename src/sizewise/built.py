"""What a warm-up gives: programs that serve, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dims import DimSpec
from .dispatch import Entry

if TYPE_CHECKING:
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
    resolved: Resolved
    outcomes: list[Outcome] = field(default_factory=list)
    state: tuple[Any, ...] = ()
