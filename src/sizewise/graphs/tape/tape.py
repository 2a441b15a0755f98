"""A recording bound to memory: one function that makes the calls, and nothing else."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..backend import CannotCapture, tensors_of
from .fast import replay_of
from .memory import place
from .recorder import AFTER, BEFORE, Recording, Step


@dataclass
class Tape:
    """A capture (`backend.Capture`): ``replay()`` makes the calls of one run again, on the arena's memory."""

    inputs: tuple[torch.Tensor, ...]
    result: Any
    bytes: int
    """Of the arena, for arguments, intermediates and results; those of live steps come on top."""
    live: tuple[str, ...]
    """The names of the steps that allocate, since they have no form that writes to given memory."""
    steps: int
    replay: Callable[[], None]
    filename: str = ""

    def release(self) -> None:
        self.inputs, self.result, self.replay = (), None, _released
        linecache.cache.pop(self.filename, None)


class Arena:
    """One block of memory that tapes share, since one replays at a time. ``bytes``: the largest that asks for room."""

    def __init__(self, bytes: int) -> None:
        self._block = torch.empty(bytes, dtype=torch.uint8)

    @property
    def bytes(self) -> int:
        return self._block.numel()

    def move(self, tensor: torch.Tensor, offset: int) -> None:
        """Put ``tensor``, as it is laid out in its storage, into the block: its storage begins at ``offset`` bytes."""
        start = offset // tensor.element_size() + tensor.storage_offset()
        tensor.set_(self._block.untyped_storage(), start, tensor.shape, tensor.stride())


@dataclass
class Plan:
    """A recording with the place of each of its buffers in an arena of ``bytes``."""

    recording: Recording
    kept: list[torch.Tensor]
    """The results that lie in the arena."""
    offsets: list[int]
    bytes: int


def plan(recording: Recording, shares: bool = False) -> Plan:
    """Where ``recording`` puts its buffers.

    Raises:
        CannotCapture: of its result, one tensor is a view of an argument, or shares memory with another, which it may
            where it ``shares``.
    """
    kept = _own_results(recording, shares)
    for tensor in kept:
        recording.buffers[tensor.untyped_storage()._cdata].last = AFTER
    spans = [(b.storage.nbytes(), b.first, max(b.first, b.last)) for b in recording.buffers.values()]
    offsets, size = place(spans)
    return Plan(recording, kept, offsets, size)


def bind(planned: Plan, arena: Arena, label: str = "") -> Tape:
    """The tape of a plan on ``arena``, which is large enough. The recording's tensors are moved there."""
    recording = planned.recording
    writer = _Writer(recording)
    source, scope = writer.write()
    moved = {id(tensor): tensor for tensor in (*writer.tensors, *recording.arguments, *planned.kept)}
    at = dict(zip(recording.buffers, planned.offsets, strict=True))
    # All addresses first: moving a tensor may free the storage that another is known by.
    places = [(tensor, at.get(tensor.untyped_storage()._cdata)) for tensor in moved.values()]
    for tensor, offset in places:
        if offset is not None:
            arena.move(tensor, offset)
    filename = f"<sizewise tape {label} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    live = tuple(step.name for step in recording.steps if step.results is not None)
    replay = replay_of(recording.steps, writer.live) or _in_python(source, scope, filename)
    arguments, steps = tuple(recording.arguments), len(recording.steps)
    return Tape(arguments, recording.result, planned.bytes, live, steps, replay, filename)


def _in_python(source: str, scope: dict[str, Any], filename: str) -> Callable[[], None]:
    exec(compile(source, filename, "exec"), scope)
    # Taken out of its own globals: without that circle the memory goes with the tape.
    replay: Callable[[], None] = scope.pop("replay")
    return replay


_numbers = itertools.count()


def _own_results(recording: Recording, shares: bool) -> list[torch.Tensor]:
    """The results that lie in memory of the tape's own; an argument that is a result is not among them."""
    arguments = {id(tensor) for tensor in recording.arguments}
    kept: dict[int, torch.Tensor] = {}
    storages: set[int] = set()
    for tensor in tensors_of(recording.result):
        if id(tensor) in kept or id(tensor) in arguments:
            continue
        cdata = tensor.untyped_storage()._cdata
        buffer = recording.buffers.get(cdata)
        if buffer is None and cdata not in recording.known:
            raise CannotCapture("a result lies in memory that is neither the tape's nor the module's")
        if buffer is None:
            continue
        if buffer.first == BEFORE:
            raise CannotCapture("a result shares memory with an argument")
        if cdata in storages and not shares:
            raise CannotCapture("results share memory with one another")
        storages.add(cdata)
        kept[id(tensor)] = tensor
    return list(kept.values())


class _Writer:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._bound: dict[int, str] = {}
        self._scope: dict[str, Any] = {"first": _first, "copy": _copy}
        self._functions: dict[int, str] = {}
        self.tensors: list[torch.Tensor] = []

    def write(self) -> tuple[str, dict[str, Any]]:
        body = [self._line(step) for step in self._recording.steps] or ["pass"]
        return "def replay():\n" + "".join(f"    {line}\n" for line in body), self._scope

    def live(self, step: Step) -> Callable[[], Any]:
        """A function that makes one call and copies its results."""
        scope = dict(self._scope)
        exec(f"def live():\n    {self._line(step)}\n", scope)
        found: Callable[[], Any] = scope.pop("live")
        return found

    def _line(self, step: Step) -> str:
        given = [self._text(value) for value in step.args]
        given += [f"{name}={self._text(value)}" for name, value in step.kwargs.items()]
        call = f"{self._function(step.run)}({', '.join(given)})"
        if step.results is None:
            return call
        if len(step.results) == 1 and step.results[0] is not None:
            return f"{self._text(step.results[0])}.copy_(first({call}))"
        targets = ", ".join("None" if tensor is None else self._text(tensor) for tensor in step.results)
        return f"copy([{targets}], {call})"

    def _function(self, function: Any) -> str:
        name = self._functions.get(id(function))
        if name is None:
            name = self._functions[id(function)] = f"f{len(self._functions)}"
            self._scope[name] = function
        return name

    def _text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (tuple, list)):
            items = ", ".join(map(self._text, value))
            return f"[{items}]" if isinstance(value, list) else f"({items}{',' if len(value) == 1 else ''})"
        if type(value) in (int, bool, str) or value is None:
            return repr(value)
        name = f"v{len(self._scope)}"
        self._scope[name] = value
        return name

    def _tensor(self, tensor: torch.Tensor) -> str:
        name = self._bound.get(id(tensor))
        if name is None:
            name = self._bound[id(tensor)] = f"t{len(self._bound)}"
            self._scope[name] = tensor
            self.tensors.append(tensor)
        return name


def _first(value: Any) -> Any:
    """An operator's one result; a piece gives a tuple of it."""
    return value[0] if isinstance(value, (tuple, list)) else value


def _copy(targets: Sequence[torch.Tensor | None], values: Any) -> None:
    for target, value in zip(targets, values, strict=True):
        if target is not None:
            target.copy_(value)


def _released() -> None:
    raise CannotCapture("the capture was released")
