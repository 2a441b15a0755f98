"""Places to keep, by paths: what a trace found, so that a program can be written down and bound to a module again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..traced import SourcePath
from ..traced.paths import module_path, read_step
from .places import Places

Node = tuple[int, str, Any]
"""Index of the parent and one step from it; a root has the parent -1, its kind and its name."""


@dataclass
class PlacesPlan:
    """``nodes`` are objects by paths, parents first; ``instructions`` are calls of `Places`' methods on them."""

    nodes: list[Node] = field(default_factory=list)
    instructions: list[tuple[Any, ...]] = field(default_factory=list)
    """(method, index of a node or -1, further arguments)."""
    _index: dict[Any, int] = field(default_factory=dict)
    _known: set[Any] = field(default_factory=set)

    def add(self, method: str, path: SourcePath | None, *arguments: Any) -> None:
        """Note one call, once."""
        call = (method, -1 if path is None else self._node(path), *arguments)
        key = (*call[:2], *map(_exactly, arguments))
        if key not in self._known:
            self._known.add(key)
            self.instructions.append(call)

    def _node(self, path: SourcePath) -> int:
        key = (path.root_kind, path.root, tuple((kind, _exactly(step)) for kind, step in path.steps))
        if key not in self._index:
            node = (self._node(path.parent()), *path.steps[-1]) if path.steps else (-1, path.root_kind, path.root)
            self._index[key] = len(self.nodes)
            self.nodes.append(node)
        return self._index[key]

    def roots(self) -> list[str]:
        """The names of the globals that paths begin with."""
        return [name for parent, kind, name in self.nodes if parent < 0 and kind == "global"]

    def bind(self, places: Places, module: nn.Module, scope: Mapping[str, Any], forward: Any = None) -> None:
        """Have ``places`` keep everything, of ``module`` and of the globals in ``scope``.

        Raises:
            MissingPlace, and AttributeError, KeyError, IndexError, TypeError: the module has no such place.
        """
        values: list[Any] = []
        for parent, kind, key in self.nodes:
            if parent < 0:
                values.append(_root(kind, key, module, scope))
            elif forward is not None and kind == "attr" and key == "forward" and values[parent] is module:
                values.append(forward)
            else:
                values.append(self._read(len(values), kind, values[parent], key))
        for method, node, *arguments in self.instructions:
            try:
                getattr(places, method)(*(() if node < 0 else (values[node],)), *arguments)
            except (AttributeError, KeyError, IndexError, TypeError) as problem:
                place = [*self._steps(node), *_last(method, arguments)] if node >= 0 else []
                raise MissingPlace(module_path(tuple(place)) or method, str(problem)) from problem

    def _read(self, number: int, kind: str, value: Any, key: Any) -> Any:
        try:
            return read_step(kind, value, key)
        except (AttributeError, KeyError, IndexError, TypeError) as problem:
            raise MissingPlace(module_path(self._steps(number)) or str(key), str(problem)) from problem

    def _steps(self, number: int) -> tuple[tuple[str, Any], ...]:
        """The steps from the root to a node."""
        parent, kind, key = self.nodes[number]
        return () if parent < 0 else (*self._steps(parent), (kind, key))


def _last(method: str, arguments: list[Any]) -> list[tuple[str, Any]]:
    """The step that a place adds to its object's path, where it does."""
    return [(str(arguments[0]), arguments[1])] if method == "value" else []


class MissingPlace(LookupError):
    """Internal: a module has no such place; ``place`` is its name."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place


def _exactly(value: Any) -> Any:
    """1, 1.0 and True are different keys here."""
    return type(value), value


def _root(kind: str, name: str, module: nn.Module, scope: Mapping[str, Any]) -> Any:
    if kind == "local":
        return module
    if kind == "module":
        import sys

        return sys.modules[name]
    return scope[name]
