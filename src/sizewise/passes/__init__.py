"""Named rewrites of pieces, applied in order before they are compiled.

The list is empty so far: pieces go to the compiler as they were traced. A pass changes a piece's graph
in place; its digest is part of the key of everything built with it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import fx

if TYPE_CHECKING:
    from ..split import Step


class Rewrite(Protocol):
    def __call__(self, graph: fx.GraphModule) -> None: ...


@dataclass(frozen=True)
class Pass:
    """A rewrite with a name."""

    name: str
    rewrite: Rewrite

    def digest(self) -> str:
        """SHA-256 of the name and the rewrite's source."""
        return hashlib.sha256(f"{self.name}\n{inspect.getsource(self.rewrite)}".encode()).hexdigest()


PASSES: tuple[Pass, ...] = ()


def apply_passes(steps: Sequence[Step], passes: Sequence[Pass]) -> None:
    """Rewrite every piece by every pass, in order; the graphs are checked after each."""
    for rewrite in passes:
        for step in steps:
            graph = getattr(step, "graph", None)
            if graph is not None:
                rewrite.rewrite(graph)
                graph.graph.lint()
                graph.recompile()


def digests(passes: Sequence[Pass]) -> dict[str, str]:
    """Name -> digest, in order."""
    return {item.name: item.digest() for item in passes}
