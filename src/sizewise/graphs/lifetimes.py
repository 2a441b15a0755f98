"""Until when the results of each piece of a program are read, and so which pieces may share memory."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .backend import CannotCapture, Job, tensors_of
from .tape.rebind import OPERATOR, PIECE, operator_name, rebound, scope_of


def watch(job: Job, inputs: Sequence[torch.Tensor]) -> tuple[dict[str, int], Any]:
    """Run a program once, as it is, and see who reads what. Piece -> the number of the session to capture it in, and
    the run's result. Of two pieces of one session, what the first gives is not read any more when the second runs.

    Raises:
        CannotCapture: it is no generated function, or an operator between pieces gives something that depends on data.
    """
    scope = scope_of(job.call)
    if scope is None:
        raise CannotCapture("the program is no generated function")
    seen = _Watch([*job.weights, *inputs, *(value for value in scope.values() if isinstance(value, torch.Tensor))])
    names: dict[str, Any] = {}
    for name, value in scope.items():
        if PIECE.fullmatch(name):
            names[name] = seen.piece(name, value)
        elif OPERATOR.fullmatch(name):
            names[name] = seen.operator(operator_name(value), value)
    result = rebound(job.call, names)(*job.fixed, *inputs)
    seen.read(result)
    return seen.sessions(), result


class _Watch:
    """Of each piece, when it ran and when its results were last read: by what memory they lie in, so that views, and
    pieces that hand their inputs on, count as well."""

    def __init__(self, lasting: Sequence[torch.Tensor]) -> None:
        """``lasting`` is what all of the run may read."""
        self._time = 0
        self._lasting = {_storage(tensor) for tensor in lasting}
        self._ran: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._pieces: dict[int, set[str]] = defaultdict(set)
        self._held: list[Any] = []
        """An address is one tensor's for as long as somebody holds it."""

    def read(self, values: Any) -> None:
        for tensor in tensors_of(values):
            for name in self._pieces.get(_storage(tensor), ()):
                self._last[name] = self._time

    def piece(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(inputs: Sequence[Any]) -> Any:
            self._time += 1
            self._held.append(list(inputs))
            self.read(inputs)
            result = call(list(inputs))
            self._ran[name] = self._last[name] = self._time
            for tensor in tensors_of(result):
                if _storage(tensor) not in self._lasting:
                    self._pieces[_storage(tensor)].add(name)
            self._held.append(result)
            return result

        return run

    def operator(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self._time += 1
            self.read((args, kwargs))
            result = function(*args, **kwargs)
            for value in result if isinstance(result, (tuple, list)) else [result]:
                if value is not None and not isinstance(value, torch.Tensor):
                    raise CannotCapture(f"{name} gives a {type(value).__name__}, which may depend on data")
            self._held.append(result)
            return result

        return run

    def sessions(self) -> dict[str, int]:
        until: list[int] = []
        found: dict[str, int] = {}
        for name, time in sorted(self._ran.items(), key=lambda item: item[1]):
            free = next((index for index, last in enumerate(until) if last < time), len(until))
            until[free : free + 1] = [self._last[name]]
            found[name] = free
        return found


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def read_later(source: str) -> dict[str, list[bool]]:
    """Piece -> for each of its inputs whether the program of this ``source`` reads the value again afterwards."""
    found: dict[str, list[bool]] = {}
    later: set[str] = set()
    (function,) = ast.parse(source).body
    for line in reversed(getattr(function, "body", [])):
        names = [node for node in ast.walk(line) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for node in ast.walk(line):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and PIECE.fullmatch(node.func.id):
                (inputs,) = node.args
                found[node.func.id] = [
                    isinstance(item, ast.Name) and item.id in later for item in getattr(inputs, "elts", [])
                ]
        later |= {node.id for node in names}
    return found
